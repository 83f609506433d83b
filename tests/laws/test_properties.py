"""Whatever the traffic, the settings and the policy: everybody ends, nothing is lost, and a jump changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.config import HostTimes
from backend.costs import ConstantCost, CostModel, LinearCost, PaddedCost
from backend.records import Records
from policies.api import Key, Policy, PriorityPolicy, RequestView, Time
from policies.fair_share import FairShare
from policies.fcfs import FCFS
from policies.multi_bin import MultiBin
from policies.oracle_length import OracleLength
from predictors.noisy_oracle import NoisyOracle
from traffic_by_hand import MS, run, traffic


class Urgent(PriorityPolicy):
    preemptive = True

    def key(self, request: RequestView, now: Time) -> Key:
        return (request.priority,)


POLICIES: list[type[Policy]] = [FCFS, OracleLength, MultiBin, FairShare, Urgent]
COSTS: list[CostModel] = [ConstantCost(10), LinearCost(5, 10, 100), PaddedCost(5, 0.2, 0.001)]


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments for `run`: small pools and long outputs, so that preemption is common."""
    n = draw(st.integers(1, 20))
    block_size = draw(st.sampled_from([1, 4, 16]))
    blocks = draw(st.sampled_from([8, 12, 40]))

    def each(values: st.SearchStrategy[int]) -> list[int]:
        return draw(st.lists(values, min_size=n, max_size=n))

    span = draw(st.sampled_from([0, 300, 2000]))
    longest = max(1, min(blocks * block_size - 2, draw(st.sampled_from([4, 30, 100]))))
    columns: dict[str, Any] = {
        "max_tokens": each(st.sampled_from([-1, 5, 30])),
        "priority": each(st.integers(0, 2)),
        "tenant": each(st.integers(0, 2)),
    }
    for name, values in (
        ("cancel_after", st.integers(0, 500).map(lambda t: t * MS)),
        ("cancel_tokens", st.integers(1, 8)),
        ("patience", st.integers(1, 300).map(lambda t: t * MS)),
    ):
        if draw(st.booleans()):
            columns[name] = each(st.one_of(st.just(-1), values))
    seqs = draw(st.sampled_from([1, 2, 4, 16]))
    host = [draw(st.sampled_from([0, 3, 7])), draw(st.sampled_from([0, 2, 5]))]
    return {
        "work": traffic(
            each(st.integers(1, longest)),
            each(st.integers(1, draw(st.sampled_from([3, 20, 60])))),
            n=n,
            arrival=[t * MS for t in sorted(each(st.integers(0, span)))],
            tenants=("a", "b", "c"),
            concurrency=draw(st.one_of(st.none(), st.integers(1, 6))),
            **columns,
        ),
        "policy": draw(st.sampled_from(POLICIES)),
        "cost": draw(st.sampled_from(COSTS)),
        "blocks": blocks,
        "block_size": block_size,
        "host": HostTimes(host[0], host[1], draw(st.sampled_from([0, 30])), draw(st.sampled_from([0, 20]))),
        "predictor_latency_s": draw(st.sampled_from([0, 0.03])),
        "horizon_s": draw(st.sampled_from([None, 0.5])),
        "batching": draw(st.sampled_from(["continuous", "static", "dynamic"])),
        "overlap": draw(st.booleans()),
        "admission": draw(st.sampled_from(["optimistic", "reserve", "peak"])),
        "max_num_seqs": seqs,
        "max_num_batched_tokens": draw(st.sampled_from([seqs, seqs + 16, 8192])),
        "max_waiting": draw(st.sampled_from([None, 3])),
    }


def records_of(case: dict[str, Any], *, jump: bool) -> Records:
    case = dict(case)
    work, policy = case.pop("work"), case.pop("policy")()
    predictor = NoisyOracle(relative_error=0.5, seed=1)
    return run(work, policy, predictor=predictor, model_len=10**5, jump=jump, **case).records


@settings(max_examples=150, deadline=None)
@given(cases())
def test_conservation_termination_and_jump_equality(case: dict[str, Any]) -> None:
    records, stepped = records_of(case, jump=True), records_of(case, jump=False)
    for table in ("requests", "steps", "service", "backlog", "holds", "gaps"):
        pd.testing.assert_frame_equal(getattr(records, table), getattr(stepped, table))
    requests, steps, service = records.requests, records.steps, records.service

    if case["horizon_s"] is None:
        assert len(requests) == len(case["work"])
        assert set(requests["state"]) <= {"completed", "cancelled", "rejected"}
        assert (requests["freed"] >= requests["ended"]).all()
        assert steps["kv_blocks"].iloc[-1] == 0 if len(steps) else True
    completed = requests[requests["state"] == "completed"]
    expected = np.minimum(completed["true_output_tokens"], completed["max_tokens"])
    assert (completed["output_tokens"] == expected).all()
    assert (requests["made_tokens"] - requests["output_tokens"]).between(0, 2).all()

    streamed = requests["output_tokens"].sum()
    spells = (service["last_step"] - service["first_step"] + 1) * service["output_tokens"]
    first = (requests["output_tokens"] > 0).sum()
    assert streamed == steps["tokens"].sum() == spells.sum()
    assert streamed == first + steps["gaps"].sum() + len(records.gaps)

    began = requests[requests["first_token"] >= 0]
    assert (began["arrival"] <= began["scheduled"]).all()
    assert (began["scheduled"] < began["first_token"]).all()
    assert (began["first_token"] <= began["last_token"]).all()
    ended = began[began["ended"] >= 0]
    assert (ended["last_token"] <= ended["ended"]).all()
