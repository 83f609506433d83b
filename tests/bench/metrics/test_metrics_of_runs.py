"""Figures of real simulated runs agree with each other: what is counted by steps, by requests and by tenants."""

from __future__ import annotations

import json

import numpy as np
import pytest

from backend.config import EngineConfig, HostTimes
from backend.costs import ConstantCost
from backend.simulated import SimulatedDevice
from backend.simulation import simulate
from backend.traffic import NONE, Tenant, Traffic
from bench.devicetime import device_time
from bench.metrics import MetricOptions, summarise
from bench.population import Population, measured_window
from bench.stepclock import StepClock
from policies.fcfs import FCFS

MS = 10**9
N = 60


def records(seed, **options):
    """Three tenants, cancels, preemptions for want of blocks."""
    rng = np.random.default_rng(seed)
    nothing, zero = np.full(N, NONE), np.zeros(N, dtype=np.int64)
    leaves = rng.integers(0, 3000, N)
    traffic = Traffic(
        arrival=np.sort(rng.integers(0, 3000 * MS, N)),
        prompt_tokens=rng.integers(1, 40, N),
        output_tokens=rng.integers(1, 40, N),
        tenant=rng.integers(0, 3, N),
        cancel_after=np.where(leaves < 900, leaves * MS, NONE),
        **dict.fromkeys(("max_tokens", "deadline", "cancel_tokens", "patience"), nothing),
        **dict.fromkeys(("user", "priority", "slo"), zero),
        tenants=[Tenant(name) for name in "abc"],
    )
    device = SimulatedDevice(ConstantCost(10), num_blocks=12, block_size=16, max_model_len=128)
    config = EngineConfig(max_num_seqs=6, overlap=bool(seed % 2))
    return simulate(traffic, FCFS(), device, config, host=HostTimes(3, 2, 0, 0), **options).records


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("warmup", [0, 10])
def test_steps_requests_and_tenants_agree(seed, warmup):
    run = records(seed, horizon_s=1.5 if seed >= 4 else None)
    s = summarise(run, MetricOptions(warmup_requests=warmup))
    window, clock = measured_window(run.requests, run.end, warmup, 0), StepClock(run.steps)
    people = Population.of(run, window, clock, None)
    first, last = clock.committed_by([window.start, window.end])
    by_step = clock.portion(run.steps["tokens"].to_numpy(), clock.steps_between(int(first), int(last)))
    assert s["preemptions"] > 0 < s["cancelled"]
    assert people.inside.sum() == by_step.sum()
    assert s["n_itl"] == sum(tenant["n_itl"] for tenant in s["tenants"].values())
    if not warmup:
        assert s["n_itl"] == (run.requests["output_tokens"] - 1).clip(lower=0).sum()
    time = device_time(run, people, clock, window)
    assert min(time) >= 0
    assert sum(time[:3]) == window.duration


@pytest.mark.parametrize("seed", range(2))
def test_a_jump_over_quiet_steps_changes_no_figure(seed):
    a, b = (json.dumps(summarise(records(seed, jump=jump), MetricOptions()), allow_nan=False) for jump in (True, False))
    assert a == b
