"""A run over time, thinned for MLflow's line charts."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from backend.config import MILLISECOND
from backend.records import Records
from bench.fairness import ServiceCurves
from bench.stepclock import StepClock

Ints = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]

MAX_POINTS = 200
MAX_TOTAL = 600  # of all series: a run spends some 0.1 s on them
MAX_TENANTS = 8  # those served most


@dataclass(frozen=True, slots=True)
class Timeline:
    steps: Ints  # (points,) milliseconds since the run began: MLflow's x axis, the same for every run
    series: dict[str, Values]  # (points,) each


def timeline_of(records: Records, service_weights: tuple[float, float]) -> Timeline:
    """Queue, batch, KV use and each tenant's cumulative service, at evenly spaced moments."""
    tenants = _most_served(records)
    points = min(MAX_POINTS, MAX_TOTAL // (3 + len(tenants)))
    steps = np.unique(np.linspace(0, records.end // MILLISECOND, points).round().astype(np.int64))
    times = steps * MILLISECOND
    waiting, running = _queues(records, times)
    series = {"timeline/waiting": waiting, "timeline/running": running}
    if records.num_blocks:
        series["timeline/kv_use"] = _kv_use(records, times)
    service = ServiceCurves(records, StepClock(records.steps), *service_weights).at(times)
    return Timeline(steps, series | {_key(records.tenants[i], i): service[i] for i in tenants})


def _queues(records: Records, times: Ints) -> tuple[Values, Values]:
    """As the step that is under way found them; between steps nobody runs, and everyone there waits."""
    planned, committed, waiting, running = (
        records.steps[column].to_numpy() for column in ("planned", "committed", "waiting", "running")
    )
    under_way = times < _latest(planned, committed, times)
    arrived, ended = (_happened(records, column, times) for column in ("arrival", "ended"))
    return (
        np.where(under_way, _latest(planned, waiting, times), arrived - ended).astype(np.float64),
        np.where(under_way, _latest(planned, running, times), 0).astype(np.float64),
    )


def _kv_use(records: Records, times: Ints) -> Values:
    """Share of the pool's blocks that is allocated, as of the last commit."""
    committed, blocks = records.steps["committed"].to_numpy(), records.steps["kv_blocks"].to_numpy()
    return np.asarray(_latest(committed, blocks, times) / records.num_blocks)


def _latest(moments: Ints, values: Ints, times: Ints) -> Ints:
    """(times,) the value of the latest of `moments` (ascending) up to each time; 0 before the first."""
    return np.asarray(np.append(0, values)[np.searchsorted(moments, times, side="right")])


def _happened(records: Records, column: str, times: Ints) -> Ints:
    """(times,) of how many requests `column` was no later than each time."""
    moments = np.sort(records.requests[column].to_numpy())
    return np.searchsorted(moments[moments >= 0], times, side="right")


def _most_served(records: Records) -> list[int]:
    service = records.service
    tokens = (service["prompt_tokens"] + service["output_tokens"]) * (service["last_step"] - service["first_step"] + 1)
    total = np.bincount(service["tenant"], tokens, len(records.tenants))
    return sorted(np.argsort(-total, kind="stable")[:MAX_TENANTS].tolist())


def _key(tenant: str, index: int) -> str:
    """A metric name that MLflow accepts."""
    plain = re.sub(r"[^\w\-. :]", "_", tenant, flags=re.ASCII)
    return f"timeline/service_{plain}" if plain == tenant else f"timeline/service_{plain}_{index}"
