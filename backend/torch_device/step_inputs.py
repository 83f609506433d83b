"""One batch as host arrays: what the live batch said when it was submitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int32]


@dataclass(slots=True)
class Piece:
    """`count` tokens of one sequence from position `start` on; its block numbers; whether the next token is wanted."""

    start: int
    count: int
    table: Sequence[int]
    sample: bool


@dataclass(slots=True)
class StepInputs:
    """Rows of all sequences one after the other, R in all; S sequences."""

    ids: Integers  # (R,) filled in when the step runs: the step before may still have to make some
    positions: Integers  # (R,)
    slots: Integers  # (R,) where KV goes: block * block_size + offset
    starts: Integers  # (S + 1,) first row of each sequence
    tables: Integers  # (S, longest table)
    sampled: Integers  # rows whose next token is wanted

    @property
    def contexts(self) -> Integers:
        """(S,) KV tokens that each sequence attends to, those of this step included."""
        return self.positions[self.starts[1:] - 1] + 1

    @property
    def longest(self) -> int:
        """Rows of the sequence that has the most."""
        return int(np.diff(self.starts).max())


def step_inputs(pieces: Sequence[Piece], block_size: int) -> StepInputs:
    counts = np.array([piece.count for piece in pieces], dtype=np.int32)
    starts = np.zeros(len(pieces) + 1, dtype=np.int32)
    np.cumsum(counts, out=starts[1:])
    rows = int(starts[-1])
    first = np.array([piece.start for piece in pieces], dtype=np.int32)
    positions = np.arange(rows, dtype=np.int32) + np.repeat(first - starts[:-1], counts)
    tables = np.zeros((len(pieces), max(len(piece.table) for piece in pieces)), dtype=np.int32)
    for i, piece in enumerate(pieces):
        tables[i, : len(piece.table)] = piece.table
    owner = np.repeat(np.arange(len(pieces)), counts)
    slots = tables[owner, positions // block_size] * block_size + positions % block_size
    wanted = np.array([piece.sample for piece in pieces], dtype=bool)
    ids = np.zeros(rows, dtype=np.int32)
    return StepInputs(ids, positions, slots, starts, tables, starts[1:][wanted] - 1)
