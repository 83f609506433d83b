"""Paged attention on a GPU through a Triton kernel of our own, which comes with torch's CUDA builds.

It reads blocks of any size where they lie, in any element type, for prefill and decode alike, and knows all sizes that
change from step to step from tensors: a CUDA graph may repeat it. With TRITON_INTERPRET=1 it runs on CPU, for tests.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from backend.torch_device.kv_cache import CacheShape, KVCache
from backend.torch_device.step_tensors import StepTensors

LEAST = 16  # the least that a matrix product on tensor cores takes of anything
PRODUCTS = {2: 64, 4: LEAST}  # by bytes of an element: rows times heads of a group that go together in prefill
PART = 16384  # bytes of keys that are read at a time: with as many of values they fit every GPU's shared memory


@triton.jit(do_not_specialize=["table_width"])  # type: ignore[untyped-decorator]
def _attend(  # type: ignore[no-untyped-def]
    out,
    query,
    keys,
    values,
    starts,
    contexts,
    tables,
    tiles,
    scale,
    table_width,
    query_row,
    query_head,
    GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One tile of rows of one sequence, all heads that share one KV head: softmax over the context as it is read."""
    tile, kv_head = tl.program_id(0), tl.program_id(1)
    sequence = tl.load(tiles + tile * 2)
    offset = tl.load(tiles + tile * 2 + 1)
    first = tl.load(starts + sequence)
    count = tl.load(starts + sequence + 1) - first
    context = tl.load(contexts + sequence)

    pair = tl.arange(0, BLOCK_M)  # a row and a head of the group
    row = offset + pair // GROUP
    head = kv_head * GROUP + pair % GROUP
    there = (row < count) & (pair // GROUP < BLOCK_M // GROUP)
    dim = tl.arange(0, PADDED_DIM)
    inside = dim < DIM
    position = context - count + row  # the last KV token that the row sees
    at = (first + row)[:, None] * query_row + head[:, None] * query_head + dim[None, :]
    q = tl.load(query + at, mask=there[:, None] & inside[None, :], other=0.0)

    best = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    mixed = tl.zeros((BLOCK_M, PADDED_DIM), tl.float32)
    end = tl.minimum(context, context - count + offset + BLOCK_M // GROUP)
    for begin in range(0, end, BLOCK_N):
        token = begin + tl.arange(0, BLOCK_N)
        known = token < end
        block = tl.load(tables + sequence * table_width + token // PAGE, mask=known, other=0)
        slot = (block * PAGE + token % PAGE) * (KV_HEADS * DIM) + kv_head * DIM
        k = tl.load(keys + slot[None, :] + dim[:, None], mask=known[None, :] & inside[:, None], other=0.0)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        scores = tl.where(token[None, :] <= position[:, None], scores, float("-inf"))
        higher = tl.maximum(best, tl.max(scores, 1))
        weights = tl.exp(scores - higher[:, None])
        shrunk = tl.exp(best - higher)
        v = tl.load(values + slot[:, None] + dim[None, :], mask=known[:, None] & inside[None, :], other=0.0)
        mixed = mixed * shrunk[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        total = total * shrunk + tl.sum(weights, 1)
        best = higher
    result = (mixed / total[:, None]).to(out.dtype.element_ty)
    to = ((first + row)[:, None] * (KV_HEADS * GROUP) + head[:, None]) * DIM + dim[None, :]
    tl.store(out + to, result, mask=there[:, None] & inside[None, :])


class TritonAttention:
    description = "a paged Triton kernel"
    replayable = True

    def __init__(self, shape: CacheShape, heads: int) -> None:
        self._group = heads // shape.kv_heads
        self.tile = max(1, PRODUCTS[shape.dtype.itemsize] // self._group)
        self._dim = max(LEAST, triton.next_power_of_2(shape.head_dim))
        self._tokens = min(64, max(LEAST, PART // (self._dim * shape.dtype.itemsize)))

    def bind(self, step: StepTensors, cache: KVCache) -> None:
        self._step, self._data, self._size = step, cache.by_token(), cache.block_size

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        step, (keys, values) = self._step, self._data[layer]
        keys.flatten(0, 1).index_copy_(0, step.slots, key)
        values.flatten(0, 1).index_copy_(0, step.slots, value)
        if query.stride(-1) != 1:
            query = query.contiguous()
        kv_heads, dim = key.shape[1:]
        out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        rows = 1 if len(step.tiles) == len(query) else self.tile
        _attend[len(step.tiles), kv_heads](
            out,
            query,
            keys,
            values,
            step.starts,
            step.contexts,
            step.tables,
            step.tiles,
            scale,
            step.tables.stride(0),
            query.stride(0),
            query.stride(1),
            GROUP=self._group,
            KV_HEADS=kv_heads,
            DIM=dim,
            PADDED_DIM=self._dim,
            PAGE=self._size,
            BLOCK_M=max(LEAST, triton.next_power_of_2(rows * self._group)),
            BLOCK_N=self._tokens,
        )
        return out
