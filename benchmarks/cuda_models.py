"""Models of random weights for `cuda_check.py`: tiny ones of three families, and 8B-like layers, as many as fit."""

from __future__ import annotations

import logging
from typing import Any

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

FAMILIES = ("llama", "qwen3", "gpt2")
VOCABULARY = 307
LAYER_GB, EMBEDDING_GB = 0.44, 1.05  # of an 8B model in bf16; it has one matrix for the input, one for the output
LIKE_8B = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
}
SMALL = {
    "hidden_size": 64,
    "intermediate_size": 100,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": VOCABULARY,
}


def tiny(family: str) -> Any:
    """Three layers in float32, on CPU, whose next token depends on all before: llama, qwen3 or gpt2."""
    torch.manual_seed(0)
    common: dict[str, Any] = {"vocab_size": VOCABULARY, "initializer_range": 0.3, "eos_token_id": None}
    if family == "gpt2":
        return GPT2LMHeadModel(GPT2Config(n_positions=256, n_embd=48, n_layer=3, n_head=4, **common)).eval()
    settings = common | SMALL | {"num_hidden_layers": 3, "max_position_embeddings": 256}
    if family == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(**settings)).eval()
    return LlamaForCausalLM(LlamaConfig(**settings)).eval()


def generated(model: Any, prompt: list[int], count: int) -> list[int]:
    """Greedy ids of the model alone."""
    ids = torch.tensor([prompt])
    mask = torch.ones_like(ids)
    out = model.generate(ids, attention_mask=mask, max_new_tokens=count, do_sample=False, pad_token_id=0)
    new: list[int] = out[0, len(prompt) :].tolist()
    return new


def large(place: torch.device, most_layers: int) -> Any:
    """In bf16: layers of an 8B model, at most half of the free memory full; on CPU a small model instead."""
    torch.manual_seed(0)
    shape, layers = SMALL, 2
    if place.type == "cuda":
        free, _ = torch.cuda.mem_get_info()
        shape, layers = LIKE_8B, max(1, min(most_layers, int((free / 2e9 - 2 * EMBEDDING_GB) / LAYER_GB)))
    config = LlamaConfig(**shape, num_hidden_layers=layers, max_position_embeddings=4096, eos_token_id=None)
    logging.getLogger(__name__).info("%d layers", layers)
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with place:
            return LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(usual)
