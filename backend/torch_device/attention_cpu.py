"""Paged attention on CPU for models that run through their own modules.

Measured on SmolLM2-135M, 30 layers, context 256, bf16, 16 sequences, two cores: benchmarks/RESULTS.md. The kernel reads
blocks where they lie; without a compiler the blocks of each sequence are gathered and torch attends to the copy,
which costs about ten times as much.
"""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from backend.torch_device import native
from backend.torch_device.kv_cache import KVCache
from backend.torch_device.runner import native_cache, native_step
from backend.torch_device.step_inputs import StepInputs


class KernelAttention:
    description = "a paged C++ kernel"

    def __init__(self, kernels: native.Kernels, threads: int) -> None:
        self.kernels, self.threads = kernels, threads

    def bind(self, step: StepInputs, cache: KVCache) -> None:
        self._bound = step  # keeps the arrays alive
        self._step, self._cache = native_step(step), native_cache(cache)

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        k, v = key.float().contiguous(), value.float().contiguous()
        q = query.contiguous()
        return self.kernels.attend(self._cache, self._step, layer, self.threads, scale, q, k, v)


class GatherAttention:
    description = "torch on gathered blocks (no compiler)"

    def bind(self, step: StepInputs, cache: KVCache) -> None:
        shape = cache.shape
        self._step, self._size = step, cache.block_size
        self._blocks, self._offsets = (torch.from_numpy(part).long() for part in divmod(step.slots, cache.block_size))
        self._tables = torch.from_numpy(step.tables).long()
        self._data = cache.data.view(shape.layers, 2, -1, shape.kv_heads, cache.block_size, shape.head_dim)

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        keys, values = self._data[layer]
        keys[self._blocks, :, self._offsets] = key
        values[self._blocks, :, self._offsets] = value
        out = torch.empty_like(query, memory_format=torch.contiguous_format)
        starts, contexts = self._step.starts.tolist(), self._step.contexts.tolist()
        for i, context in enumerate(contexts):
            rows = slice(starts[i], starts[i + 1])
            table = self._tables[i, : -(-context // self._size)]
            k, v = (part[table].transpose(0, 1).flatten(1, 2)[:, :context] for part in (keys, values))
            q = query[rows].transpose(0, 1)
            seen = torch.arange(context) <= torch.arange(context - q.shape[1], context)[:, None]
            mixed = scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scale, enable_gqa=True)
            out[rows] = mixed.transpose(0, 1)
        return out
