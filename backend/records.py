"""What a run leaves behind, as tables of integers: the one input of every figure.

Times are integer picoseconds since the run began; -1 stands for "did not happen". The same rows come from the
simulator and from a real device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

import numpy as np
import pandas as pd

REQUEST_COLUMNS = (
    "number",  # submission order
    "row",  # of the traffic
    "arrival",  # scheduled
    "submitted",  # when the engine was told
    "prompt_tokens",
    "max_tokens",  # after clipping; as asked if refused
    "predicted_tokens",  # first prediction, rounded; -1: none
    "predicted_upper",
    "state",  # index into STATES
    "finish_reason",  # index into FINISH_REASONS
    "output_tokens",  # streamed to the client
    "made_tokens",  # made by the device, those dropped after a cancel included; no wasted slots
    "scheduled",  # the device started its first batch
    "first_token",  # handed over
    "last_token",
    "ended",  # terminal state reached
    "preempted_wait",  # waits after preemptions, summed
    "preemptions",
    "longest_gap",  # between two of its tokens, only where a preemption lay between them; else -1
    "cancel_called",
    "last_made",  # the device finished the last token made
    "freed",  # its last blocks are free
)
STATES = ("completed", "cancelled", "rejected", "failed", "unfinished")

FINISH_REASONS = ("stop", "length", "cancelled", "refused", "rejected", "failed", "unfinished")
"""refused: by the engine, at submission; rejected: by the policy."""

STEP_COLUMNS = (
    # one row for a run of equal steps between decision points
    "first_step",  # number of its first batch
    "steps",
    "planned",  # the host began to plan the first
    "started",  # the device began the first
    "ended",  # the device ended the last
    "committed",  # the last was committed: its tokens are out
    "busy",  # device time, summed
    "host",  # plan + commit, summed
    "exposed",  # host time during which the device was idle, summed
    "decodes",  # members that decode, in each step; wasted ones included
    "chunks",  # pieces of prefill, in each step
    "prefill_tokens",  # in each step, recomputed ones included
    "padding",  # slots, in each step
    "wasted",  # slots of members that had ended, in each step
    "tokens",  # output tokens handed over, summed
    "waiting",  # requests, when the first was planned
    "running",
    "kv_tokens",  # written KV slots of live blocks, when the last was committed
    "kv_blocks",  # allocated, when the last was committed
    "kv_allocated_time",  # integral of allocated slots over time since the row before, token x microseconds
    "kv_time",  # time since the row before during which any block was allocated
    "gaps",  # tokens of this row that have a predecessor in the step before (an ITL each)
    "gap_time",  # commit of the last - commit of the step before the first: the sum of gaps of one member
)
STEP_FLOATS = (
    "fragmentation_time",  # integral of 1 - used/allocated over time (0 while nothing is allocated), picoseconds
    "fragmentation_max",
)

SERVICE_COLUMNS = (
    # tokens newly executed and kept: a spell of decoding, or a piece of prefill (first_step = last_step)
    "tenant",
    "first_step",
    "last_step",
    "prompt_tokens",  # in each step
    "output_tokens",  # in each step
)
BACKLOG_COLUMNS = ("tenant", "since", "until")  # at least one request of the tenant waits
HOLD_COLUMNS = ("since", "until")  # nothing in flight, and the policy or the batch timeout asked to wait
GAP_COLUMNS = ("number", "gap", "committed")  # token gaps across a preemption: each an ITL beside those of the steps


@dataclass(frozen=True, slots=True)
class Records:
    """One run. Reasons of rejections and finishes stand beside the integers, by request number."""

    requests: pd.DataFrame
    """REQUEST_COLUMNS (`state` and `finish_reason` spelled out) and, from the traffic, id, tenant (name), user, weight,
    priority, deadline, slo (name), true_output_tokens; detail: why it was refused or rejected, else empty; prompt,
    where there are texts."""
    steps: pd.DataFrame  # STEP_COLUMNS + STEP_FLOATS
    service: pd.DataFrame
    backlog: pd.DataFrame
    holds: pd.DataFrame
    gaps: pd.DataFrame
    tenants: tuple[str, ...]  # names, by the index that `service` and `backlog` use
    weights: tuple[float, ...]
    device_kind: str
    end: int  # the last terminal event, or the horizon
    num_blocks: int = 0  # of the KV pool; 0: not known, and its usage is null
    block_size: int = 0


COUNTS = frozenset(
    {
        *("number", "row", "predicted_tokens", "predicted_upper", "state", "finish_reason", "output_tokens"),
        *("made_tokens", "preemptions", "first_step", "last_step", "steps", "decodes", "chunks", "prefill_tokens"),
        *("padding", "wasted", "waiting", "running", "tokens", "kv_tokens", "kv_blocks", "gaps", "tenant"),
    }
)
"""Columns of small counts, kept in 32 bits; all others, times above all, have 64."""

CHUNK_ROWS = 1 << 15


class Table:
    """Rows of integers appended one at a time, kept as compact columns."""

    __slots__ = ("_columns", "_full", "_length", "_pack", "_rows", "columns")

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        pack = Struct(f"{len(self.columns)}q")  # twice as quick as extending an array
        self._pack = pack.pack
        self._rows = bytearray()  # the last ones
        self._full = CHUNK_ROWS * pack.size
        self._length = 0  # of each column, as far as filled
        self._columns = [np.empty(0, dtype=np.int32 if name in COUNTS else np.int64) for name in self.columns]

    def append(self, row: Sequence[int]) -> None:
        self._rows += self._pack(*row)
        if len(self._rows) >= self._full:
            self._seal()

    def frame(self, by: str | None = None) -> pd.DataFrame:
        """All rows, sorted by a column if one is named; made of the table's own memory, and the last thing it does."""
        self._seal()
        columns = [column[: self._length] for column in self._columns]
        if by is not None:
            order = np.argsort(columns[self.columns.index(by)])
            for column in columns:
                column[:] = column[order]
        return pd.DataFrame(dict(zip(self.columns, columns, strict=True)), copy=False)

    def _seal(self) -> None:
        matrix = np.frombuffer(self._rows, dtype=np.int64).reshape(-1, len(self.columns))
        start, self._length = self._length, self._length + len(matrix)
        for i, column in enumerate(self._columns):
            if len(column) < self._length:
                # memory that is not filled yet costs nothing, and one copy at a time is live
                larger = np.empty(2 * self._length, dtype=column.dtype)
                larger[:start] = column[:start]
                self._columns[i] = column = larger
            column[start : self._length] = matrix[:, i]
        self._rows = bytearray()
