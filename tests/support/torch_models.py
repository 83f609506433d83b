"""Tiny models with random weights, and what they say when `generate` runs them alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

VOCABULARY = 307
ROTARY: dict[str, tuple[Any, Any]] = {
    "llama": (LlamaForCausalLM, LlamaConfig),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config),
}


def tiny(family: str, **changes: Any) -> Any:
    """llama (grouped heads), qwen2 (biases), qwen3 (normed heads), gpt2 (absolute positions); weights from seed 0."""
    torch.manual_seed(0)
    common: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "initializer_range": 0.3,
    }
    if family == "gpt2":
        small = {"n_positions": 256, "n_embd": 48, "n_layer": 3, "n_head": 4}
        return GPT2LMHeadModel(GPT2Config(**(common | small | changes))).eval()
    small = {
        "hidden_size": 64,
        "intermediate_size": 100,
        "num_hidden_layers": 3,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 256,
    }
    model, config = ROTARY[family]
    made = model(config(**(common | small | changes))).eval()
    for name, parameter in made.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.3)
    return made


def generated(model: Any, prompt: list[int], count: int) -> list[int]:
    """Greedy ids of the model alone, past any EOS."""
    ids = torch.tensor([prompt])
    mask = torch.ones_like(ids)
    out = model.generate(
        ids, attention_mask=mask, max_new_tokens=count, do_sample=False, pad_token_id=0, eos_token_id=None
    )
    new: list[int] = out[0, len(prompt) :].tolist()
    return new


def prompts(*lengths: int, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(3, VOCABULARY, size=length).tolist() for length in lengths]
