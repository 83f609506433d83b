"""Fair share between tenants (VTC, Sheng et al., OSDI'24): Llama-2-7B on an A10G, a pool of 10,000 tokens, 256/256."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from backend.config import SECOND, HostTimes
from backend.costs import RooflineCost
from backend.hardware import gpu_figures, model_figures
from backend.records import Records
from backend.traffic import Tenant, Traffic
from bench.fairness import ServiceCurves
from bench.metrics import MetricOptions, summarise
from bench.stepclock import StepClock
from policies.api import Policy
from policies.fair_share import FairShare
from policies.fcfs import FCFS
from traffic_by_hand import run, traffic

EFFICIENCY = 0.665
"""Of the roofline, so that the server does 1.55 requests/s of 256/256 tokens."""


def arrivals(rate: float, start: float = 0, end: float = 600) -> list[float]:
    """Evenly spaced, seconds."""
    return (start + np.arange(1, int((end - start) * rate) + 1) / rate).tolist()


def suite(times: Sequence[Sequence[float]], weights: Sequence[float] | None = None) -> Traffic:
    """A tenant for each list of arrival times."""
    pairs = sorted((t, i) for i, own in enumerate(times) for t in own)
    return traffic(
        256,
        256,
        arrival=[round(t * SECOND) for t, _ in pairs],
        tenant=[i for _, i in pairs],
        max_tokens=256,
        tenants=[Tenant(f"t{i}", 1.0 if weights is None else weights[i]) for i in range(len(times))],
    )


def serve(work: Traffic, policy: Policy, horizon_s: float = 600) -> Records:
    model, gpu = model_figures("Llama-2-7B"), gpu_figures("A10G")
    return run(
        work,
        policy,
        cost=RooflineCost(model, gpu, compute_efficiency=EFFICIENCY, memory_efficiency=EFFICIENCY),
        host=HostTimes(0, 0, 0, 0),
        blocks=625,
        overlap=True,
        admission="reserve",
        horizon_s=horizon_s,
        audit=False,
    ).records


def service(records: Records, *times_s: float) -> np.ndarray:
    """(tenants, times): 1 x prompt + 2 x output tokens, undivided."""
    curves = ServiceCurves(records, StepClock(records.steps), 1, 2)
    weights = np.array(records.weights)[:, None]
    return np.asarray(curves.at(np.array([round(t * SECOND) for t in times_s]))) * weights


def test_overload() -> None:
    work = suite([arrivals(1.5), arrivals(3)])
    fair, fcfs = serve(work, FairShare()), serve(work, FCFS())
    rates = [(r.requests["state"] == "completed").sum() / 600 for r in (fair, fcfs)]
    assert rates[1] == pytest.approx(1.55, abs=0.03)
    assert rates[0] == pytest.approx(rates[1], rel=0.02)
    differences = [summarise(r, MetricOptions())["accumulated_difference"] for r in (fair, fcfs)]
    bound = 2 * 2 * 10_000  # 2U, U = w_q * tokens in the running batch
    assert differences[0] <= bound
    assert differences[0] * 20 <= differences[1]
    assert differences[1] == pytest.approx(237_738, rel=0.15)


def test_proportional() -> None:
    work = suite([arrivals(0.25), arrivals(0.5), arrivals(1.5)])

    def mean_ttft(policy: Policy) -> list[float]:
        requests = serve(work, policy).requests
        begun = requests[requests["first_token"] >= 0]
        ttft = (begun["first_token"] - begun["arrival"]) / SECOND
        return [float(ttft[begun["tenant"] == f"t{i}"].mean()) for i in range(3)]

    light, medium, heavy = mean_ttft(FairShare())
    assert max(light, medium) <= heavy / 10
    equal = mean_ttft(FCFS())
    assert max(equal) <= 1.1 * min(equal)


def test_weighted() -> None:
    weights = [1.0, 2.0, 3.0, 4.0]
    records = serve(suite([arrivals(2)] * 4, weights), FairShare(), horizon_s=400)
    served = service(records, 360)[:, 0]
    assert served / served.sum() == pytest.approx(np.array(weights) / 10, rel=0.03)


def test_a_tenant_back_after_a_long_silence_gets_its_share_and_no_more() -> None:
    silent_until = 300.0
    work = suite([arrivals(3), arrivals(3, start=silent_until)])
    records = serve(work, FairShare())
    served = service(records, silent_until + 20, 600)
    gained = served[:, 1] - served[:, 0]
    assert gained[1] / gained.sum() == pytest.approx(0.50, abs=0.02)
