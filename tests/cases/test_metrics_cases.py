"""Figures of whole simulated runs with right values worked by hand; those of records by hand are in tests/bench."""

from __future__ import annotations

from typing import Any

import pytest

from backend.config import HostTimes
from backend.costs import ConstantCost
from bench.metrics import MetricOptions, summarise
from engine_by_hand import Script
from policies.api import Decision, EngineView
from policies.fcfs import FCFS
from traffic_by_hand import MS, run, traffic

both_loops = pytest.mark.parametrize("overlap", [False, True], ids=["sync", "overlap"])
S = 1000 * MS
FREE = HostTimes(0, 0, 0, 0)


def summary_of(*args: Any, **settings: Any) -> dict[str, Any]:
    return summarise(run(*args, **settings).records, MetricOptions())


def test_one_token_and_eleven() -> None:
    """Held for 0.9 s, then steps of 0.1 s: both have a token at 1.0 s, and one goes on to 2.0 s."""
    work = traffic([10, 1], 99, max_tokens=[1, 11])
    hold = Script(lambda view: Decision(admit=view.waiting, hold_until=900 * MS))
    s = summary_of(work, hold, cost=ConstantCost(100), host=FREE, overlap=False)
    assert (s["n_tpot"], s["mean_tpot_ms"], s["p99_tpot_ms"]) == (1, 100, 100)
    assert (s["n_ttft"], s["mean_ttft_ms"], s["duration"]) == (2, 1000, 2.0)
    assert s["gpu_hold_fraction"] == pytest.approx(0.45)


def test_a_preemption_on_the_way() -> None:
    """Steps of 0.5 s: tokens at 1.0 and 1.5, preempted at 1.5, resumed at 3.0, tokens at 3.5 and 4.0 s."""

    def answer(view: EngineView) -> Decision:
        if view.now < 500 * MS:
            return Decision(hold_until=500 * MS)
        if 1500 * MS <= view.now < 3 * S:
            return Decision(preempt=view.running, hold_until=3 * S)
        return Decision(admit=[r for r in view.waiting if r.id == "0"], revisit_steps=1)

    work = traffic(4, 99, max_tokens=4, cancel_after=[-1, 4 * S])  # the second only waits: someone has to
    records = run(work, Script(answer, preemptive=True), cost=ConstantCost(500), host=FREE, overlap=False).records
    request = records.requests.iloc[0]
    times = [request[name] / S for name in ("first_token", "last_token", "ended", "preempted_wait", "longest_gap")]
    assert times == [1.0, 4.0, 4.0, 1.5, 2.0]
    s = summarise(records, MetricOptions())
    assert (s["n_ttft"], s["mean_ttft_ms"], s["mean_e2el_ms"]) == (1, 1000, 4000)
    assert (s["n_preempted_wait"], s["mean_preempted_wait_ms"], s["preemptions"]) == (1, 1500, 1)
    assert s["max_itl_ms"] >= 1500
    assert s["mean_queue_wait_ms"] == 500


def test_success_and_total_throughput_of_ten_seconds() -> None:
    """A hundred tokens completed, and fifty of a request that comes at 5 s and leaves with them at 10 s."""
    work = traffic(4, 999, max_tokens=[100, 900], arrival=[0, 5 * S], cancel_tokens=[-1, 50])
    s = summary_of(work, FCFS(), cost=ConstantCost(100), host=FREE, overlap=False)
    assert (s["duration"], s["completed"], s["cancelled"]) == (10.0, 1, 1)
    assert (s["output_throughput"], s["output_throughput_all"]) == (10.0, 15.0)


@both_loops
@pytest.mark.parametrize("jump", [True, False])
def test_host_and_device_time_of_a_hundred_steps(overlap: bool, jump: bool) -> None:
    """Device 10 ms, host 5 ms."""
    s = summary_of(traffic(4, 999, max_tokens=100), FCFS(), overlap=overlap, jump=jump)
    assert s["gpu_idle_fraction"] == pytest.approx(5 / 1005 if overlap else 1 / 3)
    assert s["gpu_busy_fraction"] + s["gpu_idle_fraction"] == pytest.approx(1)
    assert (s["host_time_s"], s["exposed_host_time_s"]) == (0.5, 0.005 if overlap else 0.5)
    assert (s["steps"], s["host_bound"], s["total_output_tokens"]) == (100, False, 100)


@both_loops
def test_cancel_everything_leaves_nothing_behind(overlap: bool) -> None:
    work = traffic(
        40, 500, n=9, arrival=[i * 7 * MS for i in range(9)], cancel_after=[(200 - i * 7) * MS for i in range(9)]
    )
    records = run(work, FCFS(), overlap=overlap, max_num_seqs=4, max_num_batched_tokens=64).records
    assert set(records.requests["state"]) == {"cancelled"}
    last = records.steps.iloc[-1]
    assert (last["kv_tokens"], last["kv_blocks"]) == (0, 0)
    s = summarise(records, MetricOptions())
    assert (s["cancelled"], s["completed"], s["unfinished"], s["output_throughput"]) == (9, 0, 0, 0)
    assert s["output_throughput_all"] > 0
    assert s["n_cancellation_lag"] == (records.requests["scheduled"] >= 0).sum() == 4
    assert 0 <= s["cancellation_lag_mean_ms"] <= s["cancellation_lag_p99_ms"] <= 25


@both_loops
@pytest.mark.parametrize("admission", ["optimistic", "reserve"])
def test_a_life_is_in_order(admission: str, overlap: bool) -> None:
    work = traffic(
        [3, 30, 9] * 10,
        [1, 20, 40] * 10,
        arrival=[i * 11 * MS for i in range(30)],
        cancel_after=[-1, -1, -1, 90 * MS, 0, 300 * MS] * 5,
        patience=[-1, 400 * MS] * 15,
    )
    requests = run(
        work, FCFS(), overlap=overlap, admission=admission, blocks=20, block_size=4, max_num_seqs=6
    ).records.requests
    assert (requests["arrival"] <= requests["submitted"]).all()
    for earlier, later in (
        ("arrival", "scheduled"),
        ("scheduled", "first_token"),
        ("first_token", "last_token"),
        ("last_token", "ended"),
        ("ended", "freed"),
        ("arrival", "ended"),
    ):
        both = requests[(requests[earlier] >= 0) & (requests[later] >= 0)]
        assert len(both) > 0
        assert (both[earlier] <= both[later]).all(), (earlier, later)
    assert set(requests["state"]) == {"completed", "cancelled"}
