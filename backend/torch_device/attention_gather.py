"""Paged attention with nothing but torch: the blocks of each sequence are gathered, and torch attends to the copy.

Runs on every device. It is what is left where no kernel is: without a compiler on CPU, without Triton on a GPU.
"""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from backend.torch_device.kv_cache import KVCache
from backend.torch_device.step_tensors import StepTensors


class GatherAttention:
    description = "torch on gathered blocks"
    tile = 0
    replayable = False  # each sequence by itself, as long as it is

    def bind(self, step: StepTensors, cache: KVCache) -> None:
        self._step, self._size, self._data = step, cache.block_size, cache.by_token()

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        step, (keys, values) = self._step, self._data[layer]
        keys.flatten(0, 1)[step.slots] = key
        values.flatten(0, 1)[step.slots] = value
        out = torch.empty_like(query, memory_format=torch.contiguous_format)
        starts = step.host.starts.tolist()
        for i, context in enumerate(step.host.contexts.tolist()):
            rows = slice(starts[i], starts[i + 1])
            table = step.tables[i, : -(-context // self._size)]
            k, v = (part[table].flatten(0, 1)[:context].transpose(0, 1) for part in (keys, values))
            q = query[rows].transpose(0, 1)
            to = torch.arange(context, device=query.device)
            seen = to <= to[context - q.shape[1] :, None]
            mixed = scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scale, enable_gqa=True)
            out[rows] = mixed.transpose(0, 1)
        return out
