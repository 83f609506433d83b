"""Any model through its own code: a ragged batch as one sequence, its attention layers ours."""

from __future__ import annotations

import inspect
from typing import Any, Protocol

import torch
from transformers import AttentionInterface

from backend.torch_device.kv_cache import KVCache
from backend.torch_device.step_inputs import StepInputs
from backend.torch_device.step_tensors import StepTensors, tensors_of

NAME = "batchyard_paged"
UNKNOWN = ("softcap", "s_aux", "position_bias", "head_mask")  # kinds of attention that ours is not


class UnsupportedModel(ValueError):
    """A model that would not run rightly here; the message names it, the reason and, where there is one, a way out."""


class Attention(Protocol):
    description: str
    tile: int
    """Rows of one sequence that it takes together, if it wants to be told which (`StepTensors.tiles`); else 0."""
    replayable: bool
    """Whether what it does follows from the tensors alone, so that a CUDA graph may repeat it for other numbers."""

    def bind(self, step: StepTensors, cache: KVCache) -> None:
        """What the next calls are about."""

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """`query` (rows, heads, dim), `key` and `value` (rows, kv_heads, dim): write KV, return (rows, heads, dim)."""


def paged_attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' attention function: (1, heads, rows, dim) in, (1, rows, heads, dim) out."""
    asked = [name for name in UNKNOWN if kwargs.get(name) is not None]
    if asked:
        raise UnsupportedModel(f"{type(module).__name__} wants {', '.join(asked)}, which this attention cannot do")
    attention: Attention = module.batchyard_attention  # type: ignore[assignment]
    layer: int = module.layer_idx  # type: ignore[assignment]
    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    return attention.attend(layer, q, k, v, scaling or query.shape[-1] ** -0.5)[None], None


class ModulesRunner:
    def __init__(self, model: Any, attention: Attention) -> None:
        AttentionInterface.register(NAME, paged_attention_forward)
        self.model, self.attention = model, attention
        self.description = f"the model's own modules, attention by {attention.description}"
        self._picks_rows = "logits_to_keep" in inspect.signature(model.forward).parameters
        for module in model.modules():
            if hasattr(module, "layer_idx"):
                module.batchyard_attention = attention
        model.set_attn_implementation(NAME)

    def logits(self, step: StepInputs, cache: KVCache) -> torch.Tensor:
        with torch.inference_mode():
            return self.forward(tensors_of(step, self.attention.tile, cache.data.device), cache)

    def forward(self, step: StepTensors, cache: KVCache) -> torch.Tensor:
        """`logits` for inputs that are where the model is; waits for nothing. Under inference mode."""
        self.attention.bind(step, cache)
        keep = {"logits_to_keep": step.sampled} if self._picks_rows else {}
        ids, positions = step.ids[None], step.positions[None]
        out = self.model(input_ids=ids, position_ids=positions, use_cache=False, **keep).logits[0]
        logits: torch.Tensor = (out if self._picks_rows else out[step.sampled]).float()
        return logits
