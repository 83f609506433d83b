"""A workload that makes no sense is refused before anything runs, by the key that is wrong."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bench.errors import BadInput
from bench.traffic.build import build_traffic, check_workload
from bench.traffic.config import (
    ArrivalConfig,
    ClientConfig,
    LengthConfig,
    PartyConfig,
    SyntheticConfig,
    TenantConfig,
    TraceConfig,
)

NAN = math.nan


@pytest.mark.parametrize("rate", [0.0, -1.0, NAN])
def test_rate(rate: float) -> None:
    with pytest.raises(BadInput, match=rf"^workload\.rate: {rate:g} is not > 0$"):
        check_workload(SyntheticConfig(rate=rate))


@pytest.mark.parametrize("shape", [0.0, -1.0, NAN])
def test_shape(shape: float) -> None:
    with pytest.raises(BadInput, match=rf"^workload\.arrival\.burstiness: {shape:g} is not > 0$"):
        check_workload(SyntheticConfig(arrival=ArrivalConfig(kind="gamma", burstiness=shape)))


def output(**settings: object) -> SyntheticConfig:
    return SyntheticConfig(output=LengthConfig(**settings))  # type: ignore[arg-type]


def arrival(**settings: object) -> SyntheticConfig:
    return SyntheticConfig(arrival=ArrivalConfig(**settings))  # type: ignore[arg-type]


def tenant(**settings: object) -> SyntheticConfig:
    return SyntheticConfig(tenants={"a": TenantConfig(**settings), "b": TenantConfig()})  # type: ignore[arg-type]


REFUSED = {
    "workload.requests: 0": SyntheticConfig(requests=0),
    "workload.duration_s: nan": SyntheticConfig(duration_s=NAN),
    "workload.concurrency: 0": SyntheticConfig(concurrency=0),
    "workload.max_tokens: 0": SyntheticConfig(max_tokens=0),
    "workload.max_tokens: 1000000000000": SyntheticConfig(max_tokens=10**12),
    "workload.requests: missing; nothing else ends workload.rate=20": SyntheticConfig(requests=None),
    "workload.requests: missing; nothing else ends workload.rate=inf": SyntheticConfig(
        rate=math.inf, requests=None, duration_s=1.0
    ),
    "workload.duration_s: 1e-09 s pass": SyntheticConfig(duration_s=1e-9),
    "workload.rate: 1e-09 is so low": SyntheticConfig(rate=1e-9),
    "workload.rate: 1e+06 makes more than": SyntheticConfig(rate=1e6, requests=None, duration_s=1e6),
    "workload.arrival.kind: 'weibull' is not one of poisson, gamma, constant": arrival(kind="weibull"),
    "workload.arrival.burstiness: only kind=gamma": arrival(burstiness=0.5),
    "workload.arrival: on_s and off_s": arrival(on_s=1.0),
    "workload.arrival: ramp_to and ramp_s": arrival(ramp_s=1.0),
    "workload.arrival.off_s: -1": arrival(on_s=1.0, off_s=-1.0),
    "workload.arrival.start_s: inf": arrival(start_s=math.inf),
    "workload.rate: inf cannot go on and off": SyntheticConfig(
        rate=math.inf, arrival=ArrivalConfig(on_s=1.0, off_s=1.0)
    ),
    "workload.output.kind: 'normal'": output(kind="normal"),
    "workload.output.mean: 0 is not > 0": output(mean=0.0),
    "workload.output.mean: must be finite": output(mean=math.inf),
    "workload.output.mean: kind=fixed takes a whole number": output(kind="fixed", mean=1.5),
    "workload.output.mean: missing": output(),
    "workload.output.high: missing": output(kind="uniform", low=1),
    "workload.output.low: 5 is above": output(kind="uniform", low=5, high=4),
    "workload.output.low: 0": output(kind="uniform", low=0, high=4),
    "workload.output.min: 9 is above": output(mean=10.0, min=9, max=8),
    "workload.output.cv: kind=fixed takes no cv": output(kind="fixed", mean=10.0, cv=1.0),
    "workload.output.sigma: missing": output(median=10.0),
    "workload.output.cv: give mean and cv, or": output(median=10.0, sigma=1.0, cv=1.0),
    "workload.output.max: missing; kind=zipf": output(kind="zipf", exponent=1.0),
    "workload.output: kind=empirical takes either": output(kind="empirical"),
    "workload.output.values: needs whole numbers >= 1, got 0": output(kind="empirical", values=[3, 0]),
    "workload.client.cancel_probability: 1.5": SyntheticConfig(client=ClientConfig(1.5, 1.0)),
    "workload.client: cancel_probability needs": SyntheticConfig(client=ClientConfig(0.5)),
    "workload.client.cancel_probability: missing": SyntheticConfig(client=ClientConfig(cancel_tokens=4)),
    "workload.client.patience_s: 0": SyntheticConfig(client=ClientConfig(patience_s=0.0)),
    "workload.client.spread: 'wide'": SyntheticConfig(client=ClientConfig(spread="wide")),
    "workload.tenants.a.share: 0": tenant(share=0.0),
    "workload.tenants.a.weight: nan": tenant(weight=NAN),
    "workload.tenants.a.users: 0": tenant(users=0),
    "workload.tenants.a.rate: -1": tenant(rate=-1.0),
    "workload.tenants.a.deadline_s: 0": tenant(deadline_s=0.0),
    "workload.tenants.a.arrival.burstiness: 0": tenant(arrival=ArrivalConfig(kind="gamma", burstiness=0.0)),
    "workload.tenants.a.prompt.high: missing": tenant(prompt=LengthConfig(kind="uniform", low=1)),
    "workload.tenants.a.client.cancel_tokens: 0": tenant(client=ClientConfig(0.5, cancel_tokens=0)),
    "workload.rate: every tenant has a rate of its own": SyntheticConfig(tenants={"a": TenantConfig(rate=1.0)}),
    "workload.rate: missing; the share of b": SyntheticConfig(
        rate=None, tenants={"a": TenantConfig(rate=1.0), "b": TenantConfig()}
    ),
    "workload.path: missing": TraceConfig(format="azure"),
    "workload.format: missing": TraceConfig(path="x.csv"),
    "workload.format: 'alibaba' is not one of azure": TraceConfig(format="alibaba", path="x.csv"),
    "workload.rate_scale: 0": TraceConfig(format="azure", path="x.csv", rate_scale=0.0),
    "workload.fraction: 0": TraceConfig(format="azure", path="x.csv", fraction=0.0),
    "workload.limit: 0": TraceConfig(format="azure", path="x.csv", limit=0),
    "workload.start_s, workload.end_s": TraceConfig(format="azure", path="x.csv", start_s=5.0, end_s=5.0),
    "workload.over_limit: 'cut'": TraceConfig(format="azure", path="x.csv", over_limit="cut"),
    "workload.over_limit: keep contradicts": TraceConfig(
        format="azure", path="x.csv", over_limit="keep", max_prompt_tokens=5
    ),
    "workload.assign: 'random'": TraceConfig(format="azure", path="x.csv", assign="random"),
    "workload.tenants: missing; assign=shares": TraceConfig(format="azure", path="x.csv", assign="shares"),
    "workload.tenants.a.weight: 0": TraceConfig(format="azure", path="x.csv", tenants={"a": PartyConfig(weight=0.0)}),
    "nowhere.csv: no such file": TraceConfig(format="azure", path="nowhere.csv"),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused_with_one_line_naming_the_key(message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as refused:
        build_traffic(REFUSED[message], 0, 4096, tmp_path)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_negative_seed() -> None:
    with pytest.raises(BadInput, match="seed: -1"):
        build_traffic(SyntheticConfig(), -1, 4096, Path())
