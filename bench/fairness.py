"""Who was served how much, and was that fair?

Service is what a tenant's tokens cost, w_p * prompt + w_q * output, counted when executed, over the tenant's weight.
Figures compare the tenants that sent requests. Definitions after Sheng et al., OSDI'24 (VTC), and its artifact.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.records import Records
from bench.population import PS_PER_S, UNFINISHED, Population, Window
from bench.sample import Floats, Sample
from bench.spans import Ints, Spans, common, union
from bench.stepclock import StepClock


class ServiceCurves:
    """Service of each tenant since the run began, after each step."""

    def __init__(self, records: Records, clock: StepClock, prompt_weight: float, output_weight: float) -> None:
        self.clock = clock
        self._upto = np.append(0, clock.last)  # the steps at which a row ends
        self._curves: Floats = np.zeros((len(records.tenants), len(self._upto)))
        tenant, first, last, prompt, output = (records.service[c].to_numpy(np.int64) for c in _SPELL)
        for i, weight in enumerate(records.weights):
            own = tenant == i
            for tokens, cost in ((prompt, prompt_weight), (output, output_weight)):
                self._curves[i] += cost / weight * accumulate(first[own], last[own], tokens[own], self._upto)

    def at(self, times: npt.ArrayLike) -> Floats:
        """(tenants, times): service by the steps committed at or before each of `times`."""
        return self.after(self.clock.committed_by(times))

    def after(self, steps: Ints) -> Floats:
        """(tenants, steps): service by the end of each of `steps`."""
        return self._along(self._curves, steps)

    def rows(self, first: int, last: int) -> Floats:
        """(tenants, rows): service at the end of each row that ends with a step in first .. last."""
        return self._curves[:, np.searchsorted(self._upto, first) : np.searchsorted(self._upto, last, side="right")]

    def ranges(self, u: int, v: int, spans: Spans) -> Floats:
        """(spans,) maximum less minimum of S_u - S_v over each closed span."""
        apart: Floats = self._curves[u] - self._curves[v]
        first, last = self.clock.committed_by(spans.since), self.clock.committed_by(spans.until)
        ends = self._along(apart, first), self._along(apart, last)
        low, high = np.minimum(*ends), np.maximum(*ends)
        begin, stop = np.searchsorted(self._upto, first), np.searchsorted(self._upto, last, side="right")
        some = begin < stop  # spans in which a row ends: in between, the difference is linear
        if some.any():
            apart = np.append(apart, 0.0)  # one more, for stop = len
            cuts = np.column_stack([begin[some], stop[some]]).ravel()
            low[some] = np.minimum(low[some], np.minimum.reduceat(apart, cuts)[::2])
            high[some] = np.maximum(high[some], np.maximum.reduceat(apart, cuts)[::2])
        return np.asarray(high - low)

    def _along(self, curve: Floats, steps: Ints) -> Floats:
        """(..., rows) -> (..., steps): linear within a row, whose steps are equal."""
        row = np.minimum(np.searchsorted(self._upto, steps), len(self._upto) - 1)
        before = np.maximum(row - 1, 0)
        share = (steps - self._upto[before]) / np.maximum(self._upto[row] - self._upto[before], 1)
        return np.asarray(curve[..., before] + share * (curve[..., row] - curve[..., before]))


_SPELL = ("tenant", "first_step", "last_step", "prompt_tokens", "output_tokens")


def accumulate(first: Ints, last: Ints, tokens: Ints, steps: Ints) -> Ints:
    """(steps,) of spells of `tokens` a step from `first` to `last`, the tokens in all steps up to each of `steps`.

    Exact. A spell counts tokens * (step - first + 1) until it ends, tokens * (last - first + 1) from then on.
    """
    total = np.zeros(len(steps), dtype=np.int64)
    for edge, sign in ((first, 1), (last + 1, -1)):
        at = np.searchsorted(steps, edge)
        slope, offset = (np.zeros(len(steps) + 1, dtype=np.int64) for _ in range(2))
        np.add.at(slope, at, tokens)
        np.add.at(offset, at, tokens * (edge - 1))
        total += sign * (steps * np.cumsum(slope[:-1]) - np.cumsum(offset[:-1]))
    return total


def fairness_figures(
    records: Records,
    people: Population,
    curves: ServiceCurves,
    window: Window,
    weights: tuple[float, float],
    window_s: float,
) -> dict[str, Any]:
    """All over the window; `weights` of prompt and output tokens, `window_s` of the windows of the VTC form."""
    tenants = [int(i) for i in np.unique(people.tenant)]
    backlogs = [_backlog(records, i, window) for i in tenants]
    diffs = Sample(windowed_differences(records, people, window, weights, window_s))
    return {
        "jain": jain(curves, tenants, backlogs),
        "max_service_difference": max_service_difference(curves, tenants, backlogs),
        "accumulated_difference": accumulated_difference(people, curves, tenants, window),
        "service_difference_window_max": diffs.max,
        "service_difference_window_mean": diffs.mean,
        "service_difference_window_var": None if diffs.std is None else diffs.std**2,
    }


def max_service_difference(curves: ServiceCurves, tenants: list[int], backlogs: list[Spans]) -> float | None:
    """Over all pairs, and all maximal spans in which both are backlogged: the largest range of S_u/w_u - S_v/w_v."""
    return max(_pair_differences(curves, tenants, backlogs), default=None)


def _pair_differences(curves: ServiceCurves, tenants: list[int], backlogs: list[Spans]) -> Iterator[float]:
    for (u, of_u), (v, of_v) in combinations(zip(tenants, backlogs, strict=True), 2):
        both = common((of_u, of_v))
        if len(both.since):
            yield float(curves.ranges(u, v, both).max())


def jain(curves: ServiceCurves, tenants: list[int], backlogs: list[Spans]) -> float | None:
    """Jain's index of the service rates while all are backlogged: 1 if equal, 1/n if one gets everything."""
    all_of_them = common(backlogs) if len(tenants) > 1 else None
    if all_of_them is None or not len(all_of_them.since):
        return None
    service = (curves.at(all_of_them.until) - curves.at(all_of_them.since)).sum(axis=1)[tenants]
    squares = float(np.square(service).sum())
    return float(service.sum() ** 2 / (len(tenants) * squares)) if squares else None


def accumulated_difference(
    people: Population, curves: ServiceCurves, tenants: list[int], window: Window
) -> float | None:
    """The largest max_u S_u/w_u - min_u S_u/w_u, S since the run began, at any moment up to the last arrival.

    After it, tenants drain what they asked for, and the difference would be one of demand. None if all arrive at once.
    """
    until = min(int(people.arrival.max(initial=-1)), window.end)
    if len(tenants) < 2 or until <= window.start:
        return None
    first, last = curves.clock.committed_by([window.start, until])
    moments = np.hstack([curves.rows(int(first), int(last)), curves.after(np.array([first, last]))])[tenants]
    return float((moments.max(axis=0) - moments.min(axis=0)).max())


def windowed_differences(
    records: Records, people: Population, window: Window, weights: tuple[float, float], window_s: float
) -> Floats:
    """(windows,) tokens/s: sum over u of min(max_v s_v - s_u, |requested_u - s_u|), as the artifact plots it.

    Whole windows one after another, up to the last arrival. s: each request's service, spread evenly from its first
    token to its end. requested: the service of what arrived in the window, at the length that it turned out to have
    (unfinished: its true length, where known). Both over the tenant's weight.
    """
    width = round(window_s * PS_PER_S)
    last_arrival = min(int(people.arrival.max(initial=0)), window.end)
    edges = np.arange(window.start, last_arrival + 1, width, dtype=np.int64)
    if len(edges) < 2 or len(np.unique(people.tenant)) < 2:
        return np.zeros(0)
    present = np.unique(people.tenant)
    shape = (len(records.tenants), len(edges) - 1)
    prompt_weight, output_weight = (w / np.asarray(records.weights)[people.tenant] for w in weights)
    prompt = prompt_weight * people.prompt_tokens
    began = people.first_token >= 0
    since = people.first_token[began]
    until = np.maximum(people.ended[began], since + 1)  # a single token has no length in time
    streamed = (prompt + output_weight * people.output_tokens)[began]
    served = _spread(since, until, streamed, people.tenant[began], edges, shape)[present] / window_s
    arrived = (people.arrival >= edges[0]) & (people.arrival < edges[-1])
    at = people.tenant * shape[1] + (people.arrival - edges[0]) // width
    wanted = prompt + output_weight * _wanted_output(records, people)
    requested = np.bincount(at[arrived], wanted[arrived], shape[0] * shape[1]).reshape(shape)[present] / window_s
    return np.asarray(np.minimum(served.max(axis=0) - served, np.abs(requested - served)).sum(axis=0))


def _wanted_output(records: Records, people: Population) -> Ints:
    truth = np.minimum(
        records.requests["true_output_tokens"].to_numpy(np.int64), records.requests["max_tokens"].to_numpy(np.int64)
    )
    return np.where(people.state == UNFINISHED, np.maximum(truth, people.output_tokens), people.output_tokens)


def _spread(since: Ints, until: Ints, amount: Floats, tenant: Ints, edges: Ints, shape: tuple[int, int]) -> Floats:
    """(tenants, windows): of `amount` evenly over [since, until), what falls between each two edges."""
    start, end, width = int(edges[0]), int(edges[-1]), int(edges[1] - edges[0])
    seen = (until > start) & (since < end)
    since, until, tenant = since[seen], until[seen], tenant[seen]
    rate = amount[seen] / (until - since)
    since, until = np.maximum(since, start) - start, np.minimum(until, end) - start
    a, b = since // width, (until - 1) // width  # its first and its last window
    more = b > a
    total = np.zeros((shape[0], shape[1] + 1))
    np.add.at(total, (tenant[more], a[more] + 1), rate[more] * width)  # all of each window between the two
    np.add.at(total, (tenant[more], b[more]), -rate[more] * width)
    total = np.cumsum(total, axis=1)
    np.add.at(total, (tenant, a), rate * (np.minimum(until, (a + 1) * width) - since))
    np.add.at(total, (tenant[more], b[more]), (rate * (until - b * width))[more])
    return total[:, :-1]


def _backlog(records: Records, tenant: int, window: Window) -> Spans:
    of = records.backlog[records.backlog["tenant"] == tenant]
    until = np.where(of["until"] < 0, window.end, of["until"])
    return union(of["since"].to_numpy(np.int64), until).clip(window.start, window.end)
