"""The requests of a run as arrays, and the window in which they are measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.records import STATES, Records
from bench.errors import BadInput
from bench.spans import Ints, Spans, union
from bench.stepclock import StepClock

PS_PER_S = 10**12
PS_PER_MS = 10**9
COMPLETED, CANCELLED, REJECTED, FAILED, UNFINISHED = range(len(STATES))

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Window:
    """From the end of the warm-up to the last terminal event, in picoseconds."""

    start: int
    end: int

    @property
    def duration(self) -> int:
        return self.end - self.start

    @property
    def duration_s(self) -> float:
        return self.duration / PS_PER_S

    def holds(self, times: Ints) -> Mask:
        """Which events lie inside. What ends the warm-up, and all of that moment, belongs to the warm-up."""
        return (times >= 0) & (times <= self.end) & (times > (self.start or -1))


def measured_window(requests: pd.DataFrame, end: int, warmup_requests: int, warmup_s: float) -> Window:
    """The warm-up lasts for `warmup_s` and until `warmup_requests` have completed, whichever is later.

    Raises BadInput where that leaves nothing to measure.
    """
    start = round(warmup_s * PS_PER_S)
    if warmup_requests:
        completed = np.sort(requests["ended"].to_numpy()[(requests["state"] == "completed").to_numpy()])
        if warmup_requests >= len(completed):
            raise BadInput(
                f"metrics.warmup_requests={warmup_requests}: {len(completed)} of {len(requests)} requests completed, "
                "so that nothing is left to measure; shorten the warm-up or send more requests"
            )
        start = max(start, int(completed[warmup_requests - 1]))
    if start and start >= end:
        raise BadInput(
            f"metrics.warmup_requests={warmup_requests}, metrics.warmup_s={warmup_s:g}: the warm-up takes "
            f"{start / PS_PER_S:g} s of a run of {end / PS_PER_S:g} s; shorten it or send more requests"
        )
    return Window(start, end)


@dataclass(frozen=True)
class Population:
    """Some requests, as equally long arrays. Times in picoseconds, -1 where it did not happen."""

    number: Ints
    tenant: Ints  # index into Records.tenants
    state: Ints  # index into STATES
    slo: Ints  # index into `slo_names`
    arrival: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    inside: Ints  # of the output tokens, those streamed inside the window
    scheduled: Ints
    first_token: Ints
    last_token: Ints
    ended: Ints  # the end of the run where unfinished
    preempted_wait: Ints
    preemptions: Ints
    cancel_called: Ints
    last_made: Ints
    freed: Ints
    alone: Ints  # E2EL alone on an idle engine; -1: not known
    slo_names: tuple[str, ...]

    @classmethod
    def of(cls, records: Records, window: Window, clock: StepClock, alone: Ints | None) -> Population:
        frame = records.requests
        named = ("tenant", "state", "slo")
        columns = {
            f.name: frame[f.name].to_numpy(np.int64) for f in fields(cls) if f.name in frame and f.name not in named
        }
        slo_names = tuple(frame["slo"].unique())
        columns["slo"] = _codes(frame["slo"], slo_names)
        columns["tenant"] = _codes(frame["tenant"], records.tenants)
        columns["state"] = _codes(frame["state"], STATES)
        columns["ended"] = np.where(columns["state"] == UNFINISHED, records.end, columns["ended"])
        columns["inside"] = _inside(columns, records.gaps, window, clock)
        columns["alone"] = np.full(len(frame), -1) if alone is None else alone
        return cls(**columns, slo_names=slo_names)

    def __len__(self) -> int:
        return len(self.number)

    def take(self, chosen: Mask) -> Population:
        if chosen.all():
            return self
        index = np.flatnonzero(chosen)
        columns = {name: values[index] for name, values in vars(self).items() if name != "slo_names"}
        return Population(**columns, slo_names=self.slo_names)

    def count(self, state: int) -> int:
        return int((self.state == state).sum())

    def live(self) -> Spans:
        """When at least one of them was waiting or running."""
        return union(self.arrival, self.ended)

    def most_live(self, window: Window) -> int:
        """Most of them waiting or running at one moment of the window."""
        arrivals, ends = np.sort(self.arrival), np.sort(self.ended)
        moments = np.append(arrivals[(arrivals > window.start) & (arrivals <= window.end)], window.start)
        live = np.searchsorted(arrivals, moments, side="right") - np.searchsorted(ends, moments, side="right")
        return int(live.max())


def _codes(names: pd.Series, known: Sequence[str]) -> Ints:
    codes, present = pd.factorize(names)
    codes = pd.Index(list(known)).get_indexer(pd.Index(present))[codes]
    if (codes < 0).any():
        raise ValueError(f"records: {names.name} {names[codes < 0].iloc[0]!r} is none of {', '.join(known)}")
    return codes.astype(np.int64)


def rows_of(numbers: Ints, wanted: Ints) -> Ints:
    """Where in `numbers` (each once) the `wanted` stand."""
    order = np.argsort(numbers)
    return np.asarray(order[np.searchsorted(numbers, wanted, sorter=order)])


def _inside(columns: Mapping[str, Ints], gaps: pd.DataFrame, window: Window, clock: StepClock) -> Ints:
    """Of the tokens of each request, those inside the window.

    A decoding request gets one in every step from its first on, but for the gaps across preemptions.
    """
    made = columns["output_tokens"]
    if window.start == 0:
        return made
    border = clock.committed_by(window.start)
    before = border - clock.committed_by(columns["first_token"]) + 1
    resumed = gaps["committed"].to_numpy()
    stopped, resumed_step = clock.committed_by(resumed - gaps["gap"].to_numpy()), clock.committed_by(resumed)
    without = np.maximum(np.minimum(border, resumed_step - 1) - stopped, 0)
    np.subtract.at(before, rows_of(columns["number"], gaps["number"].to_numpy()), without)
    over = (columns["first_token"] <= window.start) & (columns["last_token"] > window.start)
    return np.where(columns["first_token"] > window.start, made, np.where(over, made - before, 0))
