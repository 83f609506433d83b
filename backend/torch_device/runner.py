"""What turns a step into logits: the model's own modules, or one fused call."""

from __future__ import annotations

from typing import Protocol

import torch

from backend.torch_device import native
from backend.torch_device.kv_cache import KVCache
from backend.torch_device.step_inputs import StepInputs


class Runner(Protocol):
    @property
    def description(self) -> str:
        """How it computes, for the log."""

    def logits(self, step: StepInputs, cache: KVCache) -> torch.Tensor:
        """Write KV of all rows; (sampled rows, vocabulary) in float32."""


def native_step(step: StepInputs) -> native.Step:
    """The same arrays for the kernels; valid as long as `step` is."""
    arrays = (step.ids, step.positions, step.slots, step.starts, step.tables, step.sampled)
    rows, sequences = len(step.ids), len(step.starts) - 1
    return native.Step(rows, sequences, len(step.sampled), step.tables.shape[1], *(a.ctypes.data for a in arrays))


def native_cache(cache: KVCache) -> native.Cache:
    shape = cache.shape
    return native.Cache(cache.data.data_ptr(), cache.num_blocks + 1, shape.kv_heads, cache.block_size, shape.head_dim)
