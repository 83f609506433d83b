"""Memory for keys and values, in blocks, and how many of them fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What one token leaves in the cache: for each layer a key and a value of (kv_heads, head_dim)."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def token_bytes(self) -> int:
        return self.layers * 2 * self.kv_heads * self.head_dim * self.dtype.itemsize

    def blocks_in(self, memory: int, block_size: int) -> int:
        """How many blocks of `block_size` tokens `memory` bytes hold."""
        return memory // (self.token_bytes * block_size)


class KVCache:
    """`data` is (layers, 2, num_blocks + 1, kv_heads, block_size * head_dim); who attends arranges the last axis.

    The block past the last is scratch: padding writes there.
    """

    def __init__(self, shape: CacheShape, num_blocks: int, block_size: int, device: str = "cpu") -> None:
        self.shape, self.num_blocks, self.block_size = shape, num_blocks, block_size
        size = (shape.layers, 2, num_blocks + 1, shape.kv_heads, block_size * shape.head_dim)
        if device != "cpu":
            self.data = torch.zeros(size, dtype=shape.dtype, device=device)
            return
        # numpy's zeros are pages that the system gives out when they are first written; torch's are written at once
        length = int(np.prod(size)) * shape.dtype.itemsize
        raw = np.zeros(length + 64, dtype=np.uint8)
        aligned = -raw.ctypes.data % 64
        self.data = torch.from_numpy(raw)[aligned : aligned + length].view(shape.dtype).view(size)
