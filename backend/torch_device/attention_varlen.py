"""Paged attention on a GPU through torch's `varlen_attn`, where a FlashAttention that knows block tables is installed.

The one inside torch (FlashAttention 2) does not. FlashAttention 3 (package flash_attn_interface, for Hopper) and 4
(flash_attn.cute, for Blackwell) do, once torch is told to use them: torch.nn.attention.activate_flash_attention_impl.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch

from backend.torch_device.kv_cache import CacheShape, KVCache
from backend.torch_device.step_tensors import StepTensors

KINDS = {9: ("FA3", "flash_attn_interface"), 10: ("FA4", "flash_attn.cute")}
"""By compute capability: the name that torch has for it, and the package that it comes in."""


class NotHere(Exception):
    """A way to compute attention that this machine does not have; the message says what is missing."""


def flash_kind(capability: tuple[int, int], shape: CacheShape) -> str:
    """The kind for `activate_flash_attention_impl`. Raises NotHere."""
    if capability[0] not in KINDS:
        raise NotHere(f"varlen_attn reads blocks on compute capability 9 and 10 only, not {capability[0]}")
    kind, package = KINDS[capability[0]]
    if shape.dtype == torch.float32:
        raise NotHere(f"{kind} takes no float32")
    if shape.head_dim % 8 or shape.head_dim > 256:
        raise NotHere(f"{kind} takes no heads of {shape.head_dim}")
    if not _there(package):
        raise NotHere(f"varlen_attn reads blocks with {kind} only, and {package} is not installed")
    return kind


class VarlenAttention:
    tile = 0
    replayable = True

    def __init__(self, kind: str) -> None:
        torch.nn.attention.activate_flash_attention_impl(kind)
        self.description = f"torch's varlen_attn ({kind})"

    def bind(self, step: StepTensors, cache: KVCache) -> None:
        self._data, self._slots = cache.by_token(), step.slots
        self._starts, self._contexts, self._tables = (t.int() for t in (step.starts, step.contexts, step.tables))
        self._longest, self._room = step.host.longest, step.tables.shape[1] * cache.block_size

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        from torch.nn.attention.varlen import varlen_attn  # not in the oldest torch that the CPU path runs on

        keys, values = self._data[layer]
        keys.flatten(0, 1).index_copy_(0, self._slots, key)
        values.flatten(0, 1).index_copy_(0, self._slots, value)
        out = varlen_attn(
            query,
            keys,
            values,
            self._starts,
            None,
            self._longest,
            self._room,
            scale=scale,
            window_size=(-1, 0),
            enable_gqa=True,
            seqused_k=self._contexts,
            block_table=self._tables,
        )
        assert isinstance(out, torch.Tensor)
        return out


def _there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of the package around it
        return False
