"""Decode batches in a few fixed sizes, on memory that stays where it is: on CUDA each is a graph, captured once.

A batch is filled up to the next size with rows for nobody, which write into the scratch block.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from backend.torch_device.kv_cache import KVCache
from backend.torch_device.lanes import Act
from backend.torch_device.modules import ModulesRunner
from backend.torch_device.step_inputs import Piece, step_inputs
from backend.torch_device.step_tensors import StepTensors, tensors_of


def sizes_up_to(most: int) -> list[int]:
    """1, 2, 4, 8 and the multiples of 16, below `most`, and `most` itself; none for 0."""
    return sorted({size for size in (1, 2, 4, 8, *range(16, most, 16), most) if 0 < size <= most})


class DecodeSteps:
    def __init__(
        self,
        runner: ModulesRunner,
        cache: KVCache,
        sizes: Sequence[int],
        width: int,
        vocabulary: int,
        record: Callable[[Act], Act],
    ) -> None:
        """`width`: blocks of the longest sequence. `record`: see Lanes. Raises RuntimeError, naming the size."""
        self.sizes = list(sizes)
        self._runner, self._cache = runner, cache
        self._steps: dict[int, StepTensors] = {}
        self._replay: dict[int, Act] = {}
        if self.sizes:
            most = self._of_size(self.sizes[-1], width)
            self._logits = torch.zeros(self.sizes[-1], vocabulary, device=cache.data.device)
            self._steps = {size: _first(most, size) for size in self.sizes}
        for size in reversed(self.sizes):  # the smaller ones find room in the memory of the larger
            try:
                self._replay[size] = record(partial(self._run, size))
            except RuntimeError as error:
                raise RuntimeError(f"decode step of {size}: {error} (graph_seqs=0 runs without graphs)") from error

    def fit(self, pieces: Sequence[Piece]) -> int | None:
        """The size in which such a batch can run; None if it is no decode batch, or too large.

        One row each; those whose next token is wanted come first.
        """
        wanted = sum(piece.sample for piece in pieces)
        if not all(piece.count == 1 and piece.sample == (i < wanted) for i, piece in enumerate(pieces)):
            return None
        at = bisect_left(self.sizes, len(pieces))
        return self.sizes[at] if at < len(self.sizes) else None

    def run(self, step: StepTensors) -> torch.Tensor:
        """`step` has one of the sizes; (size, vocabulary), which the next run overwrites. Waits for nothing."""
        size = len(step.ids)
        room = self._steps[size]
        room.host = step.host
        for name in ("ids", "positions", "slots", "contexts"):
            getattr(room, name).copy_(getattr(step, name))
        room.tables[:, : step.tables.shape[1]].copy_(step.tables)
        self._replay[size]()
        return self._logits[:size]

    def _run(self, size: int) -> None:
        self._logits[:size].copy_(self._runner.forward(self._steps[size], self._cache))

    def _of_size(self, size: int, width: int) -> StepTensors:
        scratch = Piece(0, 1, [self._cache.num_blocks] * width, True)
        host = step_inputs([scratch] * size, self._cache.block_size)
        return tensors_of(host, self._runner.attention.tile, self._cache.data.device)


def _first(most: StepTensors, size: int) -> StepTensors:
    """The same memory for fewer sequences of one row."""
    host = most.host
    part = type(host)(
        host.ids[:size],
        host.positions[:size],
        host.slots[:size],
        host.starts[: size + 1],
        host.tables[:size],
        np.arange(size, dtype=np.int32),
    )
    return StepTensors(
        part,
        most.ids[:size],
        most.positions[:size],
        most.slots[:size],
        most.starts[: size + 1],
        most.tables[:size],
        most.sampled[:size],
        most.contexts[:size],
        most.tiles[:size],
    )
