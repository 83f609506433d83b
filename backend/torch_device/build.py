"""On CPU: choose how a loaded model runs, check it against the model itself, and size its cache."""

from __future__ import annotations

import psutil
import torch

from backend.torch_device.attention_cpu import KernelAttention
from backend.torch_device.attention_gather import GatherAttention
from backend.torch_device.fused import FusedDecoder, fusible
from backend.torch_device.loading import Loaded
from backend.torch_device.modules import Attention, ModulesRunner, UnsupportedModel
from backend.torch_device.native import load_kernels
from backend.torch_device.probe import reference, runs_rightly
from backend.torch_device.runner import Runner

MEMORY_SHARE = 0.25  # of what is free, for keys and values, where nothing is said


def cpu_runner(loaded: Loaded, threads: int, block_size: int, fused: bool = True, compiled: bool = True) -> Runner:
    """The fastest way to run the model that gives the model's own numbers.

    Raises UnsupportedModel if none does.
    """
    model, dtype = loaded.model, loaded.cache.dtype
    expected = reference(model)
    kernels = load_kernels(dtype) if compiled and _kernels_fit(loaded, block_size) else None
    if kernels is not None and fused and fusible(model):
        runner: Runner = FusedDecoder(model, kernels, threads, loaded.max_model_len)
        if runs_rightly(runner, loaded, block_size, expected):
            loaded.model = None  # its weights are packed
            return runner
    attention: Attention = GatherAttention() if kernels is None else KernelAttention(kernels, threads)
    runner = ModulesRunner(model, attention)
    if not runs_rightly(runner, loaded, block_size, expected):
        raise UnsupportedModel(f"model {loaded.name}: does not give its own numbers with paged attention")
    return runner


def blocks_for_memory(loaded: Loaded, block_size: int, memory: int | None = None) -> int:
    """Blocks that fit `memory` bytes, by default a share of what the system has free; at least one."""
    return blocks_in(
        loaded, block_size, int(psutil.virtual_memory().available * MEMORY_SHARE) if memory is None else memory
    )


def blocks_in(loaded: Loaded, block_size: int, memory: int) -> int:
    """Blocks that fit `memory` bytes. Raises ValueError if not even one does."""
    blocks = loaded.cache.blocks_in(memory, block_size)
    if blocks < 1:
        raise ValueError(f"model {loaded.name}: {memory} bytes hold no block of {block_size} tokens")
    return blocks


def _kernels_fit(loaded: Loaded, block_size: int) -> bool:
    """Pairs of tokens and of dimensions lie side by side in bf16; 16 tokens go together in larger blocks."""
    even = loaded.cache.dtype == torch.float32 or not (loaded.cache.head_dim % 2 or block_size % 2)
    return even and (block_size <= 16 or block_size % 16 == 0)
