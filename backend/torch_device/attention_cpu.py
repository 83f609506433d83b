"""Paged attention on CPU for models that run through their own modules: a C++ kernel reads blocks where they lie.

At the shape of SmolLM2-135M (30 layers) in bf16, 16 sequences of 256 tokens, one thread, a step costs it 9 ms of CPU
time; without a compiler, torch on gathered blocks (attention_gather.py) takes 120 ms, some 13 times as much. See
benchmarks/RESULTS.md.
"""

from __future__ import annotations

import torch

from backend.torch_device import native
from backend.torch_device.kv_cache import KVCache
from backend.torch_device.runner import native_cache, native_step
from backend.torch_device.step_tensors import StepTensors


class KernelAttention:
    description = "a paged C++ kernel"
    tile = 0
    replayable = False

    def __init__(self, kernels: native.Kernels, threads: int) -> None:
        self.kernels, self.threads = kernels, threads

    def bind(self, step: StepTensors, cache: KVCache) -> None:
        self._bound = step  # keeps the arrays alive
        self._step, self._cache = native_step(step.host), native_cache(cache)

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        if len(query) != len(self._bound.host.ids):  # the kernel would write past its buffers
            raise ValueError(
                f"{len(query)} rows, but the step has {len(self._bound.host.ids)}: a model that a device runs cannot "
                "be called beside it"
            )
        k, v = key.float().contiguous(), value.float().contiguous()
        q = query.contiguous()
        return self.kernels.attend(self._cache, self._step, layer, self.threads, scale, q, k, v)
