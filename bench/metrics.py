"""Every figure of a run, defined here: pure functions over `backend.records.Records`.

Names and keys are those of `vllm bench serve` where it has them; times end in _s or _ms. Undefined is None, and
latency figures carry their n. `summarise` is the entry point. Around it: `sample` has mean and percentiles,
`gaps` the ITL, `slo` who met the objectives, `devicetime` busy, stalled and empty, `fairness` service, its differences
and Jain's index, `identity` the counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from backend.records import Records
from bench.devicetime import device_time
from bench.errors import BadInput
from bench.fairness import ServiceCurves, fairness_figures
from bench.gaps import TokenGaps
from bench.identity import check_records, counts
from bench.population import (
    CANCELLED,
    COMPLETED,
    PS_PER_MS,
    PS_PER_S,
    UNFINISHED,
    Mask,
    Population,
    Window,
    measured_window,
)
from bench.sample import Sample
from bench.slo import SloTargets, met
from bench.spans import Ints
from bench.stepclock import StepClock


@dataclass
class MetricOptions:
    """How a run is measured. Raises BadInput for what cannot be."""

    warmup_requests: int = 0
    """The window begins when so many have completed, and not before `warmup_s`."""
    warmup_s: float = 0.0
    prompt_weight: float = 1.0
    """Service of a prompt token, and of an output token."""
    output_weight: float = 2.0
    window_s: float = 60.0
    """Length of the windows of `service_difference_window_*`."""
    percentiles: list[float] = field(default_factory=lambda: [50.0, 95.0, 99.0])
    slos: dict[str, SloTargets] = field(default_factory=dict)
    """By class of requests; none at all: `request_goodput` is null."""

    def __post_init__(self) -> None:
        for name in ("warmup_requests", "warmup_s", "prompt_weight", "output_weight"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise BadInput(f"metrics.{name}={getattr(self, name)}: has to be 0 or more")
        if not 0 < self.window_s < float("inf"):
            raise BadInput(f"metrics.window_s={self.window_s}: has to be above 0")
        if not all(0 <= q <= 100 for q in self.percentiles):
            raise BadInput(f"metrics.percentiles={list(self.percentiles)}: each has to be in 0 .. 100")


def summarise(records: Records, options: MetricOptions, alone: Ints | None = None) -> dict[str, Any]:
    """The summary of a run, ready for JSON: plain numbers, strings, None and dicts, in a fixed order.

    `alone`: (requests,) E2EL of each request of `records.requests` alone on an idle engine, in picoseconds; -1: not
    known. Raises BadInput where the warm-up leaves nothing or a class has no SLO, RecordsBroken for a defect.
    """
    window = measured_window(records.requests, records.end, options.warmup_requests, options.warmup_s)
    clock = StepClock(records.steps)
    people = Population.of(records, window, clock, alone)
    check_records(people)
    gaps = TokenGaps(records, people, clock, window)
    weights = options.prompt_weight, options.output_weight
    curves = ServiceCurves(records, clock, *weights)
    served = curves.at([window.start, window.end])
    tenants = {}
    for i, (name, weight) in enumerate(zip(records.tenants, records.weights, strict=True)):
        service = float(served[i, 1] - served[i, 0])
        own = people.take(people.tenant == i)
        figures = request_figures(own, gaps.of_tenant(i), window, options)
        tenants[name] = {"weight": float(weight), "service": service, "service_tokens": service * weight, **figures}
    return {
        "device_kind": records.device_kind,
        "duration": window.duration_s,
        **request_figures(people, gaps.pooled(), window, options),
        **device_figures(records, people, clock, window),
        **step_figures(records, clock, window),
        **kv_figures(records, clock, window),
        **fairness_figures(records, people, curves, window, weights, options.window_s),
        "tenants": tenants,
    }


def request_figures(people: Population, gaps: Sample, window: Window, options: MetricOptions) -> dict[str, Any]:
    """Of all requests, or of one tenant's."""
    ended = people.take(window.holds(people.ended))
    began = people.take(people.arrival >= window.start)
    return {
        **counts(ended),
        "ended_in_warmup": len(people) - len(ended),
        **throughput_figures(people, ended, window, options),
        **latency_figures(began, gaps, options.percentiles),
        "preemptions": int(ended.preemptions.sum()),
        "max_concurrent_requests": people.most_live(window),
        **cancellation_figures(ended),
        **slowdown_figures(began),
    }


def throughput_figures(people: Population, ended: Population, window: Window, options: MetricOptions) -> dict[str, Any]:
    """Success (of completed requests) apart from everything streamed. Tokens count if handed over in the window.

    A prompt counts with its first output token. Goodput: completed requests that met all their SLOs, per second.
    """
    done = ended.state == COMPLETED
    prompt = int(ended.prompt_tokens[done & window.holds(ended.first_token)].sum())
    output = int(ended.inside[done].sum())
    good = int(met(ended, options.slos).sum()) if options.slos else None

    def rate(amount: int | None) -> float | None:
        return None if amount is None or not window.duration else amount / window.duration_s

    return {
        "total_input_tokens": prompt,
        "total_output_tokens": output,
        "request_throughput": rate(ended.count(COMPLETED)),
        "request_goodput": rate(good),
        "output_throughput": rate(output),
        "total_token_throughput": rate(prompt + output),
        "output_throughput_all": rate(int(people.inside.sum())),
    }


def latency_figures(began: Population, gaps: Sample, percentiles: list[float]) -> dict[str, Any]:
    """Of the requests that arrived in the window.

    TTFT: first token handed over - scheduled arrival, of all that had one. Queue wait: arrival -> the device starts
    the first batch. Requests that a horizon left without either count as right-censored.
    TPOT: (last token - first)/(n - 1), of completed requests of two tokens or more. E2EL: end - arrival, completed.
    ITL: gaps between tokens, pooled. Preempted wait: all waits after preemptions, of each request that had one.
    """
    done = began.state == COMPLETED
    several = done & (began.output_tokens > 1)
    tpot = (began.last_token - began.first_token)[several] / (began.output_tokens - 1)[several]
    preempted = began.preempted_wait[began.preemptions > 0]
    return {
        **_since_arrival(began, began.first_token).figures("ttft", percentiles),
        **Sample(tpot / PS_PER_MS).figures("tpot", percentiles),
        **gaps.figures("itl", percentiles),
        **Sample((began.ended - began.arrival)[done] / PS_PER_MS).figures("e2el", percentiles),
        **_since_arrival(began, began.scheduled).figures("queue_wait", percentiles),
        **Sample(preempted / PS_PER_MS).figures("preempted_wait", percentiles),
    }


def _since_arrival(people: Population, moment: Ints) -> Sample:
    happened: Mask = moment >= 0
    censored = int((~happened & (people.state == UNFINISHED)).sum())
    return Sample((moment - people.arrival)[happened] / PS_PER_MS, censored=censored)


def cancellation_figures(ended: Population) -> dict[str, Any]:
    """Of cancelled requests that the device had begun. Lag: max(0, last token made - cancel called).

    Blocks-freed lag: blocks free - cancel called, where it held any then.
    """
    cancelled = ended.take((ended.state == CANCELLED) & (ended.cancel_called >= 0) & (ended.scheduled >= 0))
    lag = Sample(np.maximum(0, cancelled.last_made - cancelled.cancel_called) / PS_PER_MS)
    freed = (cancelled.freed - cancelled.cancel_called)[cancelled.freed >= cancelled.cancel_called]
    freed_lag = Sample(freed / PS_PER_MS)
    return {
        "n_cancellation_lag": lag.n,
        "cancellation_lag_mean_ms": lag.mean,
        "cancellation_lag_p99_ms": lag.percentile(99),
        "n_blocks_freed_lag": freed_lag.n,
        "blocks_freed_lag_mean_ms": freed_lag.mean,
        "blocks_freed_lag_p99_ms": freed_lag.percentile(99),
    }


def slowdown_figures(began: Population) -> dict[str, Any]:
    """E2EL over E2EL alone on an idle engine, of completed requests; null where the latter is not known."""
    known = (began.state == COMPLETED) & (began.alone > 0)
    slowdown = Sample((began.ended - began.arrival)[known] / began.alone[known])
    return {
        "n_slowdown": slowdown.n,
        "slowdown_mean": slowdown.mean,
        "slowdown_p50": slowdown.percentile(50),
        "slowdown_p99": slowdown.percentile(99),
    }


def device_figures(records: Records, people: Population, clock: StepClock, window: Window) -> dict[str, Any]:
    """Shares of the window: busy, idle (nothing to run though a request was there; hold is the deliberate part), empty.

    On a device that is no GPU the names stay, and `device_kind` says so.
    """
    time = device_time(records, people, clock, window)
    busy, stalled, empty, hold = (part / window.duration if window.duration else None for part in time)
    return {
        "gpu_busy_fraction": busy,
        "gpu_idle_fraction": stalled,
        "gpu_empty_fraction": empty,
        "gpu_hold_fraction": hold,
    }


def step_figures(records: Records, clock: StepClock, window: Window) -> dict[str, Any]:
    """Of the steps committed after the warm-up; one that outlasts the window (all wasted) is among them.

    Host time: plan + commit. Exposed: while the device was idle. Host-bound: the host worked longer than the device.
    Wasted: slots of requests that had ended, whose tokens nobody gets.
    """
    counted = _after_warmup(clock, window)
    busy, host, exposed = (
        int(clock.portion(records.steps[column].to_numpy(), counted).sum()) for column in ("busy", "host", "exposed")
    )
    return {
        "steps": int(counted.sum()),
        "host_time_s": host / PS_PER_S,
        "exposed_host_time_s": exposed / PS_PER_S,
        "host_bound": host > busy,
        "wasted_tokens": int((records.steps["wasted"].to_numpy() * counted).sum()),
    }


def kv_figures(records: Records, clock: StepClock, window: Window) -> dict[str, Any]:
    """Fragmentation: 1 - used / allocated token slots, mean over the time in which any is allocated, and maximum.

    Usage: allocated / all blocks, mean over all the time; its maximum as of commits.
    """
    counted = _after_warmup(clock, window)
    steps, some = records.steps, counted > 0
    time = int(clock.portion(steps["kv_time"].to_numpy(), counted).sum())
    fragmented = float((steps["fragmentation_time"].to_numpy() * (counted / clock.count)).sum())
    slots = records.num_blocks * records.block_size
    allocated = int(clock.portion(steps["kv_allocated_time"].to_numpy(), counted).sum()) * 10**6  # from token x us
    elapsed = max(window.end, int(clock.committed.max(initial=0))) - window.start
    known = bool(slots and some.any())
    return {
        "kv_fragmentation_mean": fragmented / time if time else None,
        "kv_fragmentation_max": float(steps["fragmentation_max"].to_numpy()[some].max()) if time else None,
        "kv_usage_mean": allocated / (slots * elapsed) if known else None,
        "kv_usage_max": int(steps["kv_blocks"].to_numpy()[some].max()) / records.num_blocks if known else None,
    }


def _after_warmup(clock: StepClock, window: Window) -> Ints:
    """(rows,) steps committed after the warm-up."""
    first = int(clock.committed_by(window.start)) if window.start else 0
    return clock.steps_between(first, int(clock.last.max(initial=0)))
