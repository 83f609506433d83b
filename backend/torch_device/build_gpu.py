"""On a GPU: choose what computes attention, check it against the model itself, and size the cache."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec

import torch

from backend.torch_device.attention_gather import GatherAttention
from backend.torch_device.attention_varlen import NotHere, VarlenAttention, flash_kind
from backend.torch_device.build import blocks_in
from backend.torch_device.loading import Loaded
from backend.torch_device.modules import Attention, ModulesRunner, UnsupportedModel
from backend.torch_device.probe import reference, runs_rightly

logger = logging.getLogger(__name__)

MEMORY_SHARE = 0.8  # of what the GPU has free, for keys and values; the rest is for what a step computes


def gpu_runner(loaded: Loaded, block_size: int, attentions: Sequence[str]) -> ModulesRunner:
    """The model through its own modules, with the first of `attentions` that gives the model's own numbers.

    Raises UnsupportedModel if none does.
    """
    expected, reasons = reference(loaded.model), []
    for name in attentions:
        try:
            runner = ModulesRunner(loaded.model, ATTENTIONS[name](loaded))
            if runs_rightly(runner, loaded, block_size, expected):
                return runner
            reasons.append(f"{name} does not give the model's own numbers")
        except NotHere as reason:
            reasons.append(str(reason))
            logger.info("%s: %s", loaded.name, reason)
        except Exception as error:  # whatever a kernel raises that does not compile or start on this GPU
            reasons.append(f"{name}: {error!r}")
            logger.warning("%s: not with %s: %r", loaded.name, name, error)
    raise UnsupportedModel(f"model {loaded.name}: nothing computes its attention rightly here: {'; '.join(reasons)}")


def blocks_for_gpu_memory(loaded: Loaded, block_size: int, memory: int | None = None) -> int:
    """Blocks that fit `memory` bytes, by default a share of what the GPU has free; at least one."""
    if memory is None:
        free, _ = torch.cuda.mem_get_info()
        memory = int(free * MEMORY_SHARE)
    return blocks_in(loaded, block_size, memory)


def _varlen(loaded: Loaded) -> Attention:
    if loaded.model.device.type != "cuda":
        raise NotHere("varlen_attn needs a GPU")
    return VarlenAttention(flash_kind(torch.cuda.get_device_capability(), loaded.cache))


def _triton(loaded: Loaded) -> Attention:
    if find_spec("triton") is None:
        raise NotHere("triton is not installed (it comes with torch for CUDA)")
    if loaded.model.device.type != "cuda" and not os.environ.get("TRITON_INTERPRET"):
        raise NotHere("Triton kernels need a GPU")
    from backend.torch_device.attention_triton import TritonAttention

    config = loaded.model.config.get_text_config(decoder=True)
    return TritonAttention(loaded.cache, config.num_attention_heads)


def _gather(loaded: Loaded) -> Attention:
    return GatherAttention()


ATTENTIONS: dict[str, Callable[[Loaded], Attention]] = {"varlen": _varlen, "triton": _triton, "gather": _gather}
"""The quickest first."""
