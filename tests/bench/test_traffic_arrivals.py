"""When synthetic requests come."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from backend.traffic import Traffic
from bench.traffic.build import build_traffic
from bench.traffic.config import ArrivalConfig, LengthConfig, SyntheticConfig, TenantConfig

SECOND = 10**12
ONE_TOKEN = LengthConfig(kind="fixed", mean=1)


def traffic(seed: int = 0, **settings: object) -> Traffic:
    config = SyntheticConfig(**{"prompt": ONE_TOKEN, "output": ONE_TOKEN} | settings)  # type: ignore[arg-type]
    return build_traffic(config, seed, 4096, Path()).traffic


@pytest.mark.parametrize(("shape", "spread"), [(0.25, 2.0), (1.0, 1.0), (4.0, 0.5)])
def test_burstiness_is_the_gamma_shape(shape: float, spread: float) -> None:
    arrival = ArrivalConfig(kind="gamma", burstiness=shape)
    gaps = np.diff(traffic(rate=10.0, requests=200_000, arrival=arrival).arrival) / SECOND
    assert gaps.mean() == pytest.approx(0.100, rel=0.015)
    assert gaps.std() / gaps.mean() == pytest.approx(spread, rel=0.015)


def test_poisson_gaps_are_exponential() -> None:
    gaps = np.diff(traffic(rate=10.0, requests=100_000).arrival) / SECOND
    assert gaps.mean() == pytest.approx(0.1, rel=0.01)
    assert np.mean(gaps > 0.1) == pytest.approx(math.exp(-1), abs=0.005)


def test_an_infinite_rate_puts_all_at_zero() -> None:
    assert traffic(rate=math.inf, requests=100).arrival.tolist() == [0] * 100


def test_a_constant_rate_is_exact_and_does_not_drift() -> None:
    arrival = traffic(rate=10.0, requests=100_001, arrival=ArrivalConfig(kind="constant")).arrival
    assert arrival[:3].tolist() == [0, SECOND // 10, SECOND // 5]
    assert arrival[-1] == 10_000 * SECOND


def test_on_and_off() -> None:
    arrival = ArrivalConfig(on_s=2.0, off_s=3.0)
    seconds = traffic(rate=50.0, requests=None, duration_s=1000.0, arrival=arrival).arrival / SECOND
    assert np.all(seconds % 5 < 2)
    assert len(seconds) == pytest.approx(50 * 400, rel=0.02)


def test_a_ramp_integrates_its_rate() -> None:
    """From 1/s to 3/s in 10 s: t + t²/10 requests until t = 10, so number 20 is at 10 s; then three a second."""
    arrival = ArrivalConfig(kind="constant", ramp_to=3.0, ramp_s=10.0)
    seconds = traffic(rate=1.0, requests=24, arrival=arrival).arrival / SECOND
    assert seconds[[0, 20, 23]] == pytest.approx([0, 10, 11])
    assert seconds[1:20] + seconds[1:20] ** 2 / 10 == pytest.approx(np.arange(1, 20))


def test_a_ramp_may_go_down() -> None:
    arrival = ArrivalConfig(ramp_to=1.0, ramp_s=100.0)
    seconds = traffic(rate=99.0, requests=None, duration_s=200.0, arrival=arrival).arrival / SECOND
    assert np.sum(seconds < 100) == pytest.approx(5000, rel=0.05)
    assert np.sum(seconds >= 100) == pytest.approx(100, rel=0.4)


def test_it_ends_with_requests_or_duration() -> None:
    assert len(traffic(rate=10.0, requests=50, duration_s=1e6)) == 50
    last = traffic(rate=10.0, requests=10**6, duration_s=5.0).arrival[-1]
    assert 4 * SECOND < last < 5 * SECOND


def test_asking_for_more_only_makes_the_list_longer() -> None:
    tenants = {
        "a": TenantConfig(rate=2.0, arrival=ArrivalConfig(on_s=5.0, off_s=50.0)),
        "b": TenantConfig(rate=1.0, arrival=ArrivalConfig(start_s=400.0)),
        "c": TenantConfig(),
    }
    short, long = (traffic(rate=0.1, requests=n, tenants=tenants) for n in (150, 300))
    for name in ("arrival", "tenant"):
        assert getattr(short, name).tolist() == getattr(long, name)[:150].tolist()


def test_shares_split_one_process() -> None:
    tenants = {"a": TenantConfig(share=3), "b": TenantConfig(share=1)}
    got = traffic(rate=10.0, requests=40_000, tenants=tenants)
    assert np.bincount(got.tenant) / 40_000 == pytest.approx([0.75, 0.25], abs=0.01)
    assert got.arrival.tolist() == traffic(rate=10.0, requests=40_000).arrival.tolist()


def test_a_tenants_own_process_beside_shares() -> None:
    """The rate is split over those without a rate of their own; a bursty one of them still gets its share."""
    tenants = {
        "a": TenantConfig(share=1),
        "b": TenantConfig(share=1, arrival=ArrivalConfig(kind="gamma", burstiness=0.1)),
        "c": TenantConfig(rate=5.0),
    }
    got = traffic(rate=20.0, requests=None, duration_s=2000.0, tenants=tenants)
    assert np.bincount(got.tenant) / 2000 == pytest.approx([10, 10, 5], rel=0.05)
    spread = {
        t: np.diff(got.arrival[got.tenant == t]).std() / np.diff(got.arrival[got.tenant == t]).mean() for t in (0, 1)
    }
    assert spread[0] == pytest.approx(1, rel=0.05)
    assert spread[1] == pytest.approx(math.sqrt(10), rel=0.1)


def test_merged_in_time_and_ties_by_tenant_order() -> None:
    constant = ArrivalConfig(kind="constant")
    tenants = {"b": TenantConfig(rate=1.0), "a": TenantConfig(rate=2.0)}
    got = traffic(rate=None, requests=600, arrival=constant, tenants=tenants)
    assert (got.arrival * 2 // SECOND).tolist()[:6] == [0, 0, 1, 2, 2, 3]
    assert got.tenant.tolist() == [0, 1, 1] * 200


def test_a_late_tenant_with_a_few_requests() -> None:
    tenants = {"a": TenantConfig(), "late": TenantConfig(rate=math.inf, requests=3, arrival=ArrivalConfig(start_s=2.0))}
    got = traffic(rate=100.0, requests=1000, tenants=tenants)
    assert got.arrival[got.tenant == 1].tolist() == [2 * SECOND] * 3


def test_closed_loop() -> None:
    got = traffic(rate=math.inf, requests=10, concurrency=4)
    assert got.concurrency == 4
    assert got.arrival.tolist() == [0] * 10


VTC = {  # the suites of REFERENCES §3 by rates of requests a second; 600 s
    "overload": [1.5, 3],
    "proportional": [0.25, 0.5, 1.5],
    "on_off": [0.5, 2],
    "weighted": [1, 1, 1, 1],
}


@pytest.mark.parametrize("suite", VTC)
def test_vtc_suites(suite: str) -> None:
    tenants = {f"t{i}": TenantConfig(rate=rate, weight=i + 1) for i, rate in enumerate(VTC[suite])}
    if suite == "on_off":
        tenants["t0"].arrival = ArrivalConfig(kind="constant", on_s=60.0, off_s=60.0)
    tokens = LengthConfig(kind="fixed", mean=256)
    got = traffic(
        rate=None, requests=None, duration_s=600.0, tenants=tenants, prompt=tokens, output=tokens,
        arrival=ArrivalConfig(kind="constant"),
    )  # fmt: skip
    expected = [rate * 600 for rate in VTC[suite]]
    if suite == "on_off":
        expected[0] = 150
        assert np.all(got.arrival[got.tenant == 0] // (60 * SECOND) % 2 == 0)
    assert np.bincount(got.tenant).tolist() == expected
    assert [tenant.weight for tenant in got.tenants] == list(range(1, len(expected) + 1))
    assert set(got.prompt_tokens) == set(got.output_tokens) == {256}


def test_vtc_poisson_short_and_long() -> None:
    short, long = LengthConfig(kind="fixed", mean=64), LengthConfig(kind="fixed", mean=256)
    tenants = {
        "short": TenantConfig(rate=8.0, prompt=short, output=short),
        "long": TenantConfig(rate=1.5, prompt=long, output=long),
    }
    got = traffic(rate=None, requests=None, duration_s=600.0, tenants=tenants)
    assert np.bincount(got.tenant) == pytest.approx([4800, 900], rel=0.1)
    assert set(got.prompt_tokens[got.tenant == 0]) == {64}
    assert set(got.output_tokens[got.tenant == 1]) == {256}
