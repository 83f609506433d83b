"""Rows of steps.parquet: equal steps between decision points make one row, whether stepped or jumped over."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from backend.api import Output
from backend.config import MICROSECOND
from backend.engine import Events
from backend.records import STEP_COLUMNS, STEP_FLOATS, Table
from policies.api import Time


@dataclass(slots=True)
class StepShape:
    """What is the same in all steps of a row."""

    version: int
    decisions: int
    planned: Time
    decodes: int
    chunks: int
    prefill_tokens: int
    padding: int
    waiting: int
    running: int

    def continues(self, before: StepShape) -> bool:
        """Nothing was decided and nothing has changed since `before`."""
        return self.version == before.version and self.decisions == before.decisions


@dataclass(slots=True)
class _Row:
    shape: StepShape
    first: int
    started: Time
    steps: int = 0
    ended: Time = 0
    committed: Time = 0
    busy: Time = 0
    host: Time = 0
    exposed: Time = 0
    wasted: int = 0
    tokens: int = 0
    allocated_time: int = 0
    kv_time: Time = 0
    gaps: int = 0
    gap_time: Time = 0
    fragmentation_time: float = 0.0
    fragmentation_max: float = 0.0


class StepLog:
    """Call `step` at every commit or `run` for a jump, then `holds`; `close` when anything but decoding happened."""

    def __init__(self, block_size: int) -> None:
        self._table = Table(STEP_COLUMNS)
        self._floats = array("d")
        self._block_size = block_size
        self._row: _Row | None = None  # the last one
        self._closed = False
        self._since: Time = 0  # last commit: where integrals and gaps go on
        self._kv_tokens = 0
        self._kv_blocks = 0

    def idle_until(self, now: Time) -> None:
        """Nothing was in flight, and so nothing allocated, up to `now`."""
        self._since = now

    def holds(self, kv_tokens: int, kv_blocks: int) -> None:
        """Written tokens and allocated blocks after a commit."""
        self._kv_tokens, self._kv_blocks = kv_tokens, kv_blocks

    def step(
        self, shape: StepShape, output: Output, came: Events, committed: Time, host: Time, exposed: Time, kv_blocks: int
    ) -> None:
        """One committed step; `kv_blocks` were allocated while it ran."""
        row = self._open(output.number, shape, output.started)
        gap = committed - self._since
        row.steps += 1
        row.busy += output.ended - output.started
        row.host += host
        row.exposed += exposed
        row.tokens += came.tokens
        row.wasted = came.wasted
        if came.gaps:
            row.gaps += came.gaps
            row.gap_time += gap
        self._hold(row, kv_blocks, gap)
        row.ended = output.ended
        row.committed = self._since = committed

    def add_host(self, host: Time, exposed: Time) -> None:
        """Host time of the last step that is known only now: real clocks tell late what the device hid."""
        if self._row is not None:
            self._row.host += host
            self._row.exposed += exposed

    def run(
        self,
        number: int,
        shape: StepShape,
        *,
        started: Time,
        ended: Time,
        busy: Time,
        commits: Sequence[Time],
        kv_blocks: Sequence[int],
        host: Time,
        exposed: Time,
    ) -> None:
        """A jump over ``len(commits)`` steps, the first of them `number`."""
        row = self._open(number, shape, started)
        steps, decodes = len(commits), shape.decodes
        row.steps += steps
        row.busy += busy
        row.host += host
        row.exposed += exposed
        row.tokens += steps * decodes
        row.gaps += steps * decodes
        row.gap_time += commits[-1] - self._since
        for committed, blocks in zip(commits, kv_blocks, strict=True):
            self._hold(row, blocks, committed - self._since)
            self._kv_tokens += decodes
            self._since = committed
        self._kv_blocks = kv_blocks[-1]
        row.ended, row.committed = ended, commits[-1]

    def close(self) -> None:
        """Something happened: the next step starts a row. What is freed before that still shows in this one."""
        self._closed = True

    def _write(self) -> None:
        row = self._row
        if row is None:
            return
        shape = row.shape
        self._table.append(
            (
                row.first,
                row.steps,
                shape.planned,
                row.started,
                row.ended,
                row.committed,
                row.busy,
                row.host,
                row.exposed,
                shape.decodes,
                shape.chunks,
                shape.prefill_tokens,
                shape.padding,
                row.wasted,
                row.tokens,
                shape.waiting,
                shape.running,
                self._kv_tokens,
                self._kv_blocks,
                row.allocated_time // MICROSECOND,
                row.kv_time,
                row.gaps,
                row.gap_time,
            )
        )
        self._floats.extend((row.fragmentation_time, row.fragmentation_max))

    def frame(self) -> pd.DataFrame:
        self._write()
        frame = self._table.frame()
        for i, name in enumerate(STEP_FLOATS):
            frame[name] = np.frombuffer(self._floats, dtype=np.float64)[i :: len(STEP_FLOATS)].copy()
        self._floats = array("d")
        return frame

    def _open(self, number: int, shape: StepShape, started: Time) -> _Row:
        row = self._row
        if row is None or self._closed or shape.chunks or not shape.continues(row.shape):
            self._write()
            row = self._row = _Row(shape, number, started)
            self._closed = False
        return row

    def _hold(self, row: _Row, blocks: int, time: Time) -> None:
        slots = blocks * self._block_size
        if slots:
            used = self._kv_tokens
            fragmentation = 1 - used / slots
            row.allocated_time += slots * time
            row.kv_time += time
            row.fragmentation_time += fragmentation * time
            if fragmentation > row.fragmentation_max:
                row.fragmentation_max = fragmentation
