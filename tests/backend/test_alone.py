from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.alone import alone_e2el
from backend.config import MICROSECOND, HostTimes
from backend.config import MILLISECOND as MS
from backend.costs import ConstantCost, CostModel, LinearCost, RooflineCost
from backend.hardware import GPUS, MODELS
from policies.fcfs import FCFS
from traffic_by_hand import run, traffic


def alone_ms(
    cost: CostModel,
    prompt: int,
    output: int,
    *,
    overlap: bool,
    plan: float = 3,
    commit: float = 2,
    budget: int = 2048,
    by_length: bool = True,
) -> float:
    column = alone_e2el(
        cost,
        np.array([prompt]),
        np.array([output]),
        np.array([by_length]),
        host_plan=round(plan * MS),
        host_commit=round(commit * MS),
        overlap=overlap,
        max_num_batched_tokens=budget,
    )
    return int(column[0]) / MS


def host_and_device(devices: list[int], plan: int, commit: int, by_length: bool) -> int:
    """The overlapped loop as the timelines draw it: plan 1, plan 2, commit 1, plan 3, commit 2, ..."""
    host = started = ended = 0
    ends: list[int] = []
    planned = [*devices, 0] if not by_length else devices  # an EOS is not known yet: one more, in vain
    for number, device in enumerate(planned):
        if number >= 2:
            host = max(host, ends[number - 2]) + commit
        host += plan
        started = max(host, ended)
        ended = started + device
        ends.append(ended)
    for number in range(max(0, len(planned) - 2), len(devices)):
        host = max(host, ends[number]) + commit
    return host


def test_worked_timelines() -> None:
    assert alone_ms(ConstantCost(10), 4, 100, overlap=False) == 1500
    assert alone_ms(ConstantCost(10), 4, 100, overlap=True) == 1005
    assert alone_ms(ConstantCost(4), 4, 100, overlap=False) == 900
    # host-bound: device 3-7, 7-11, then every 5 ms from 12 on; step 100 runs 497-501 and commits until 503
    assert alone_ms(ConstantCost(4), 4, 100, overlap=True) == 503
    # one step, alone: nothing to hide
    assert alone_ms(ConstantCost(10), 4, 1, overlap=True) == alone_ms(ConstantCost(10), 4, 1, overlap=False) == 15


def test_published_loops() -> None:
    """8,192 steps of 27.88 ms with 8.81 ms of host work, prefill counted as one of them."""
    sync = alone_ms(ConstantCost(27.88), 1, 8192, overlap=False, plan=6.81)
    overlap = alone_ms(ConstantCost(27.88), 1, 8192, overlap=True, plan=6.81)
    assert sync == pytest.approx(300_600, rel=1e-3)
    assert overlap == pytest.approx(228_400, rel=1e-3)


def test_prefill_in_pieces_takes_a_step_each() -> None:
    assert alone_ms(ConstantCost(10), 2048, 1, overlap=False) == 15
    assert alone_ms(ConstantCost(10), 2049, 1, overlap=False) == 30
    assert alone_ms(ConstantCost(10), 6144, 5, overlap=True) == 3 + 7 * 10 + 2


@given(
    prompt=st.integers(1, 40),
    output=st.integers(1, 30),
    budget=st.sampled_from([1, 7, 8, 16]),
    plan=st.integers(0, 12),
    commit=st.integers(0, 12),
    by_length=st.booleans(),
)
def test_overlap_is_what_the_two_timelines_make(
    prompt: int, output: int, budget: int, plan: int, commit: int, by_length: bool
) -> None:
    pieces = [min(budget, prompt - start) for start in range(0, prompt, budget)]
    device = [1 + 0.25 * count + 0.125 * sum(pieces[: i + 1]) for i, count in enumerate(pieces)]
    device += [1.25 + 0.125 * context for context in range(prompt + 1, prompt + output)]
    devices = [round(ms * MS) for ms in device]
    expected = host_and_device(devices, plan * MS, commit * MS, by_length) / MS
    cost = LinearCost(1, per_token_us=250, per_kv_token_ns=125_000)
    alone = alone_ms(cost, prompt, output, overlap=True, plan=plan, commit=commit, budget=budget, by_length=by_length)
    assert alone == expected
    sync = alone_ms(cost, prompt, output, overlap=False, plan=plan, commit=commit, budget=budget)
    assert sync == sum(devices) / MS + len(devices) * (plan + commit)


@settings(max_examples=40)
@given(
    prompt=st.integers(1, 700),
    output=st.integers(1, 60),
    spare=st.integers(0, 1),
    overlap=st.booleans(),
    plan_us=st.integers(0, 4000),
)
def test_the_engine_takes_exactly_that_long(prompt: int, output: int, spare: int, overlap: bool, plan_us: int) -> None:
    """By length (no spare token) and by EOS; a step of SmolLM2 takes 0.45 ms, so the host is slower at times."""
    cost = RooflineCost(MODELS["SmolLM2-135M"], GPUS["A10G"])
    work = traffic(prompt, output, n=1, max_tokens=output + spare)
    ran = run(
        work, FCFS(), cost=cost, host=HostTimes(plan_us / 1000, 0.3, 5, 7), overlap=overlap, max_num_batched_tokens=256
    )
    alone = alone_e2el(
        cost,
        work.prompt_tokens,
        work.output_tokens,
        work.output_tokens == work.max_tokens,
        host_plan=(plan_us + 5) * MICROSECOND,
        host_commit=307 * MICROSECOND,
        overlap=overlap,
        max_num_batched_tokens=256,
    )
    assert ran.records.requests["ended"].tolist() == alone.tolist()
