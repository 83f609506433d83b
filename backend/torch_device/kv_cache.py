"""Memory for keys and values, in blocks, and how many of them fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

CPU = torch.device("cpu")


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
    """`data` is (layers, 2, num_blocks + 1, kv_heads, block_size * head_dim); who attends arranges a block.

    The block past the last is scratch: padding writes there.
    """

    def __init__(self, shape: CacheShape, num_blocks: int, block_size: int, place: torch.device = CPU) -> None:
        self.shape, self.num_blocks, self.block_size = shape, num_blocks, block_size
        size = (shape.layers, 2, num_blocks + 1, shape.kv_heads, block_size * shape.head_dim)
        if place.type != "cpu":
            self.data = torch.zeros(size, dtype=shape.dtype, device=place)
            return
        # numpy's zeros are pages that the system gives out when they are first written; torch's are written at once
        length = int(np.prod(size)) * shape.dtype.itemsize
        raw = np.zeros(length + 64, dtype=np.uint8)
        aligned = -raw.ctypes.data % 64
        self.data = torch.from_numpy(raw)[aligned : aligned + length].view(shape.dtype).view(size)

    def by_token(self) -> torch.Tensor:
        """`data` as (layers, 2, num_blocks + 1, block_size, kv_heads, head_dim)."""
        shape = self.shape
        return self.data.view(shape.layers, 2, -1, self.block_size, shape.kv_heads, shape.head_dim)
