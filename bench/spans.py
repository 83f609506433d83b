"""Sets of moments, as sorted disjoint half-open spans [since, until) of integer picoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class Spans(NamedTuple):
    since: Ints  # (n,) increasing; since[i] < until[i] < since[i + 1]
    until: Ints  # (n,)

    @property
    def length(self) -> int:
        return int((self.until - self.since).sum())

    def clip(self, start: int, end: int) -> Spans:
        return union(np.maximum(self.since, start), np.minimum(self.until, end))


def union(since: Ints, until: Ints) -> Spans:
    """The moments in any of the spans, which may overlap, touch or be empty; O(n log n)."""
    some = since < until
    order = np.argsort(since[some], kind="stable")
    since, until = since[some][order], np.maximum.accumulate(until[some][order])
    apart = since[1:] > until[:-1]
    return Spans(since[np.append(True, apart)[: len(since)]], until[np.append(apart, True)[: len(until)]])


def common(sets: Sequence[Spans]) -> Spans:
    """The moments in all of the sets; each span is maximal."""
    times = np.concatenate([times for spans in sets for times in spans])
    change = np.concatenate(
        [np.full(len(times), sign) for spans in sets for times, sign in zip(spans, (1, -1), strict=True)]
    )
    order = np.lexsort((change, times))  # of one moment, ends come first: spans that only touch have nothing in common
    at = np.flatnonzero(np.cumsum(change[order]) == len(sets))
    times = times[order]
    return Spans(times[at], times[at + 1])
