"""Small traffic and runs for tests, everything stated in the call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from backend.config import EngineConfig, HostTimes
from backend.costs import ConstantCost, CostModel
from backend.simulated import SimulatedDevice
from backend.simulation import Run, simulate
from backend.traffic import NONE, Column, Tenant, Traffic
from policies.api import Policy

MS = 10**9


def column(value: int | Sequence[int], n: int) -> Column:
    return np.broadcast_to(np.asarray(value, dtype=np.int64), (n,)).copy()


def traffic(
    prompt: int | Sequence[int] = 4,
    output: int | Sequence[int] = 10,
    *,
    n: int | None = None,
    arrival: int | Sequence[int] = 0,
    tenants: Sequence[str] | Sequence[Tenant] = ("t",),
    **columns: Any,
) -> Traffic:
    """`n` requests, every column a number for all or a sequence; arrivals in ps."""
    if n is None:
        n = max([len(c) for c in (prompt, output, arrival, *columns.values()) if isinstance(c, Sequence)], default=1)
    defaults: dict[str, Any] = {
        "max_tokens": NONE,
        "tenant": 0,
        "user": 0,
        "priority": 0,
        "deadline": NONE,
        "cancel_after": NONE,
        "cancel_tokens": NONE,
        "patience": NONE,
        "slo": 0,
    }
    concurrency = columns.pop("concurrency", None)
    prompts = columns.pop("prompts", None)
    ids = columns.pop("ids", None)
    named = [t if isinstance(t, Tenant) else Tenant(t) for t in tenants]
    return Traffic(
        arrival=column(arrival, n),
        prompt_tokens=column(prompt, n),
        output_tokens=column(output, n),
        tenants=named,
        concurrency=concurrency,
        prompts=prompts,
        ids=ids,
        **{name: column(value, n) for name, value in (defaults | columns).items()},
    )


def run(
    work: Traffic,
    policy: Policy,
    *,
    cost: CostModel | None = None,
    blocks: int = 1000,
    block_size: int = 16,
    model_len: int = 4096,
    host: HostTimes | None = None,
    predictor: Any = None,
    jump: bool = True,
    horizon_s: float | None = None,
    predictor_latency_s: float = 0.0,
    seed: int = 0,
    **engine: Any,
) -> Run:
    """Device 10 ms a step, plan 3 ms, commit 2 ms, audited after every commit, unless stated otherwise."""
    return simulate(
        work,
        policy,
        SimulatedDevice(cost or ConstantCost(10), num_blocks=blocks, block_size=block_size, max_model_len=model_len),
        EngineConfig(**({"audit": True} | engine)),
        host=host or HostTimes(3, 2, 0, 0),
        predictor=predictor,
        jump=jump,
        horizon_s=horizon_s,
        predictor_latency_s=predictor_latency_s,
        seed=seed,
    )


def leaving_early(rng: np.random.Generator, n: int, arrival: int | Sequence[int] = 0) -> Traffic:
    """Random lengths, known beforehand; some are cut by their limit, some clients leave after so many tokens."""
    return traffic(
        prompt=rng.integers(1, 40, n).tolist(),
        output=rng.integers(1, 30, n).tolist(),
        arrival=arrival,
        max_tokens=np.where(rng.random(n) < 0.4, rng.integers(3, 30, n), NONE).tolist(),
        cancel_tokens=np.where(rng.random(n) < 0.4, rng.integers(1, 20, n), NONE).tolist(),
        tenant=rng.integers(0, 2, n).tolist(),
        tenants=["a", "b"],
    )


def end_alike(real: pd.DataFrame, simulated: pd.DataFrame) -> None:
    """Requests by id: the same ends, the same tokens but for one that was in flight when a client left."""
    real = real.loc[simulated.index]
    pd.testing.assert_frame_equal(real[["state", "finish_reason"]], simulated[["state", "finish_reason"]])
    cancelled = simulated["state"] == "cancelled"
    assert cancelled.sum() > 2
    difference = (real["output_tokens"] - simulated["output_tokens"]).abs()
    assert (difference[~cancelled] == 0).all()
    assert (difference[cancelled] <= 1).all()
