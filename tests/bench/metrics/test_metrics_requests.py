"""Latency, throughput, warm-up, horizon, goodput and the counts."""

from __future__ import annotations

import json

import numpy as np
import pytest

from backend.records import STATES
from bench.errors import BadInput
from bench.identity import RecordsBroken
from bench.metrics import MetricOptions, summarise
from bench.slo import SloTargets


def done(arrival, first, last, tokens, **more):
    """A completed request, seconds."""
    times = {"arrival": arrival, "scheduled": first, "first_token": first, "last_token": last, "ended": last}
    return {k: v * 1000 for k, v in times.items()} | {"output_tokens": tokens} | more


def test_a_single_token_has_no_tpot(by_hand):
    s = summarise(by_hand([done(0, 1, 1, 1), done(0, 1, 2, 11)]), MetricOptions())
    assert (s["n_tpot"], s["mean_tpot_ms"], s["p99_tpot_ms"]) == (1, 100, 100)
    assert (s["n_ttft"], s["mean_ttft_ms"]) == (2, 1000)
    assert summarise(by_hand([done(0, 1, 1, 1)]), MetricOptions())["mean_tpot_ms"] is None


def test_a_preemption_leaves_the_ttft_and_shows_as_a_wait_and_a_gap(by_hand):
    request = done(0, 1, 4, 3, preemptions=1, preempted_wait=1500, longest_gap=2500, scheduled=500)
    s = summarise(by_hand([request], gaps=[(0, 2500, 4000)]), MetricOptions())
    assert (s["mean_ttft_ms"], s["mean_e2el_ms"], s["mean_queue_wait_ms"]) == (1000, 4000, 500)
    assert (s["mean_preempted_wait_ms"], s["n_preempted_wait"], s["preemptions"]) == (1500, 1, 1)
    assert s["max_itl_ms"] == s["tenants"]["a"]["max_itl_ms"] == 2500


def test_itl_of_a_tenant_begins_with_the_second_token_of_a_spell(by_hand):
    """a gets a token in steps 1, 2, 3 at 1, 3, 6 s, b in steps 2 and 3; a step without predecessor makes no gap."""
    steps = [
        {"started": 0, "ended": 1000},
        {"started": 1000, "ended": 3000, "gaps": 1},
        {"started": 3000, "ended": 6000, "gaps": 2},
    ]
    rows = [done(0, 1, 6, 3), done(0, 3, 6, 2, tenant="b"), {"state": "cancelled", "ended": 5}]
    once = summarise(
        by_hand(rows[::2], [{"steps": 3, "started": 0, "ended": 6000, "gaps": 2}], service=[(0, 1, 3, 0, 1)]),
        MetricOptions(),
    )
    assert once["n_itl"] == once["tenants"]["a"]["n_itl"] == 2
    s = summarise(by_hand(rows, steps, service=[(0, 1, 3, 0, 1), (1, 2, 3, 0, 1)]), MetricOptions())
    a, b = s["tenants"].values()
    assert (s["n_itl"], s["mean_itl_ms"], s["max_itl_ms"]) == (3, pytest.approx(8000 / 3), 3000)
    assert (a["n_itl"], a["mean_itl_ms"]) == (2, 2500)
    assert (b["n_itl"], b["mean_itl_ms"]) == (1, 3000)


def test_what_a_cancelled_request_streamed_is_no_success(by_hand):
    gone = done(0, 1, 10, 50, state="cancelled", cancel_called=10000)
    s = summarise(by_hand([done(0, 1, 10, 100), gone]), MetricOptions())
    assert (s["output_throughput"], s["output_throughput_all"]) == (10.0, 15.0)
    assert (s["total_output_tokens"], s["total_input_tokens"]) == (100, 4)
    assert s["total_token_throughput"] == 10.4


def test_counts_add_up_overall_and_per_tenant(by_hand):
    rows = [
        {"state": state, "ended": 5, "tenant": t} for t, n in (("a", 2), ("b", 1)) for state in STATES for _ in range(n)
    ]
    s = summarise(by_hand(rows), MetricOptions())
    for figures, each in ((s, 3), (s["tenants"]["a"], 2), (s["tenants"]["b"], 1)):
        assert [figures[state] for state in STATES] == [each] * 5
        assert figures["submitted"] == 5 * each


def test_broken_records_are_not_summarised(by_hand):
    lost = by_hand([done(0, 1, 2, 2), done(0, 1, 2, 2)])
    lost.requests["number"] = [0, 2]
    with pytest.raises(RecordsBroken, match="0 is followed by 2"):
        summarise(lost, MetricOptions())
    with pytest.raises(RecordsBroken, match=r"request 0: first_token .* before scheduled"):
        summarise(by_hand([done(0, 1, 2, 2, scheduled=1500)]), MetricOptions())
    with pytest.raises(ValueError, match="'dropped' is none of completed"):
        summarise(by_hand([done(0, 1, 2, 2, state="dropped")]), MetricOptions())


def test_warmup_keeps_a_slow_first_step_out_of_the_ttft(by_hand):
    slow = [done(0, 9, 9, 1) for _ in range(5)]
    fast = [done(10 + i, 10.1 + i, 11 + i, 10) for i in range(5)]
    assert summarise(by_hand(slow + fast), MetricOptions())["p99_ttft_ms"] == 9000
    s = summarise(by_hand(slow + fast), MetricOptions(warmup_requests=5))
    assert s["p99_ttft_ms"] == pytest.approx(100)
    assert (s["n_ttft"], s["submitted"], s["ended_in_warmup"]) == (5, 5, 5)
    assert (s["duration"], s["request_throughput"]) == (6, 5 / 6)


def test_a_request_over_the_border_counts_its_later_tokens_and_not_its_ttft(by_hand):
    """One token a second from 1 to 10 s; the first request, and with it the warm-up, ends at 4 s: six are later."""
    steps = [{"started": 1000 * i, "ended": 1000 * (i + 1), "tokens": 1} for i in range(10)]
    merged = [steps[0], {"steps": 9, "started": 1000, "ended": 10000, "tokens": 9}]
    for table in (steps, merged):
        over, late = done(0, 1, 10, 10), done(5, 6, 10, 5)
        s = summarise(by_hand([done(0, 1, 4, 4), over, late], table), MetricOptions(warmup_requests=1))
        assert (s["total_output_tokens"], s["total_input_tokens"]) == (6 + 5, 4)
        assert (s["output_throughput"], s["output_throughput_all"]) == (11 / 6, 11 / 6)
        assert (s["n_ttft"], s["completed"], s["steps"]) == (1, 2, 6)


def test_host_time_of_the_steps_after_the_warmup(by_hand):
    """Six of the nine steps of the second row, and 93 ms * 6/9."""
    steps = [{"started": 0, "ended": 1000, "host": 7}, {"steps": 9, "started": 1000, "ended": 10000, "host": 93}]
    s = summarise(by_hand([done(0, 1, 4, 4), done(0, 1, 10, 10)], steps), MetricOptions(warmup_requests=1))
    assert (s["steps"], s["host_time_s"]) == (6, 0.062)


def test_a_warmup_that_leaves_nothing_is_refused(by_hand):
    records = by_hand([done(0, 1, 2, 2), done(0, 1, 3, 2)])
    with pytest.raises(BadInput, match=r"metrics\.warmup_requests=2: 2 of 2 requests completed"):
        summarise(records, MetricOptions(warmup_requests=2))
    with pytest.raises(BadInput, match=r"warmup_s=3: .* takes 3 s of a run of 3 s"):
        summarise(records, MetricOptions(warmup_s=3))


@pytest.mark.parametrize(
    "bad",
    [
        {"warmup_s": -1},
        {"warmup_requests": -1},
        {"window_s": 0},
        {"percentiles": [101]},
        {"output_weight": float("nan")},
    ],
)
def test_options_that_cannot_be_are_refused_by_name(bad):
    with pytest.raises(BadInput, match=rf"metrics\.{next(iter(bad))}="):
        MetricOptions(**bad)


def test_what_a_horizon_left_is_censored(by_hand):
    rows = [done(0, i, i, 1) for i in range(1, 9)] + [{"state": "unfinished", "arrival": 0} for _ in range(2)]
    s = summarise(by_hand(rows, end=20_000), MetricOptions(percentiles=[50, 70, 95]))
    assert s["p50_ttft_ms"] == s["median_queue_wait_ms"] == 5500  # of ten
    assert s["p70_ttft_ms"] == pytest.approx(7300)
    assert s["p95_ttft_ms"] is s["mean_ttft_ms"] is s["max_queue_wait_ms"] is s["std_ttft_ms"] is None
    assert (s["n_ttft"], s["unfinished"], s["n_e2el"], s["mean_e2el_ms"]) == (8, 2, 8, 4500)
    assert s["duration"] == 20


def test_goodput_asks_for_all_objectives_of_the_class(by_hand):
    rows = [
        done(0, 1, 2, 11),  # ttft 1 s, tpot 0.1 s
        done(0, 1, 4, 11),  # tpot 0.3 s
        done(0, 3, 4, 11),  # ttft 3 s
        done(0, 1, 1, 1),  # no tpot
        done(0, 3, 10, 2, slo="batch"),  # e2el 10 s
        done(0, 1, 2, 11, state="cancelled"),
    ]
    slos = {"default": SloTargets(ttft_ms=1000, tpot_ms=100), "batch": SloTargets(e2el_ms=10_000)}
    assert summarise(by_hand(rows), MetricOptions(slos=slos))["request_goodput"] == 0.3
    assert summarise(by_hand(rows), MetricOptions())["request_goodput"] is None
    with pytest.raises(BadInput, match="class 'batch' have no targets"):
        summarise(by_hand(rows), MetricOptions(slos={"default": SloTargets(ttft_ms=1)}))
    with pytest.raises(BadInput, match="ttft_ms=0"):
        SloTargets(ttft_ms=0)


def test_slowdown_is_of_completed_requests_that_have_an_alone_time(by_hand):
    rows = [done(0, 1, 4, 4), done(1, 2, 3, 4), done(0, 1, 3, 2, state="cancelled")]
    alone = np.array([10**12, -1, 10**12])
    s = summarise(by_hand(rows), MetricOptions(), alone)
    assert (s["n_slowdown"], s["slowdown_mean"], s["slowdown_p99"]) == (1, 4.0, 4.0)
    assert summarise(by_hand(rows), MetricOptions())["slowdown_mean"] is None


def test_most_requests_at_once(by_hand):
    """In a closed loop of two the next request arrives as one ends."""
    rows = [done(0, 1, 2, 2), done(0, 1, 4, 2), done(2, 3, 4, 2), done(4, 5, 6, 2)]
    assert summarise(by_hand(rows), MetricOptions())["max_concurrent_requests"] == 2
    refused = [{"state": "rejected", "arrival": 1500, "ended": 1500}]
    assert summarise(by_hand(rows + refused), MetricOptions())["max_concurrent_requests"] == 2


def test_cancelled_while_waiting(by_hand):
    """Never scheduled: no TTFT, no wait, no lag, and nothing else undefined turns into a number."""
    rows = [{"state": "cancelled", "ended": 5, "cancel_called": 5} for _ in range(3)]
    s = summarise(by_hand(rows), MetricOptions())
    assert (s["cancelled"], s["completed"], s["n_ttft"], s["n_queue_wait"], s["n_cancellation_lag"]) == (3, 0, 0, 0, 0)
    assert s["mean_ttft_ms"] is s["cancellation_lag_mean_ms"] is s["mean_queue_wait_ms"] is None
    assert s["gpu_idle_fraction"] == 1.0


@pytest.mark.parametrize("rows", [[], [{"state": "rejected", "ended": 0}]], ids=["nobody", "refused at 0"])
def test_a_run_without_time_has_no_rates(by_hand, rows):
    s = summarise(by_hand(rows), MetricOptions())
    assert s["submitted"] == s["rejected"] == len(rows)
    assert s["output_throughput"] is s["gpu_busy_fraction"] is s["jain"] is s["kv_fragmentation_mean"] is None
    assert s["duration"] == 0


def test_the_summary_is_plain_json_with_the_names_of_vllm(by_hand):
    steps = [{"started": 0, "ended": 1000, "fragmentation_time": 500, "fragmentation_max": 0.5, "kv_time": 1000}]
    records = by_hand([done(0, 1, 2, 2), done(0, 1, 2, 2, tenant="b")], steps, pool=(8, 16))
    s = summarise(records, MetricOptions())
    assert json.loads(json.dumps(s, allow_nan=False)) == s
    vllm = "duration completed failed total_input_tokens total_output_tokens request_throughput request_goodput"
    vllm += " output_throughput total_token_throughput max_concurrent_requests"
    ours = "output_throughput_all cancelled rejected unfinished gpu_busy_fraction gpu_idle_fraction gpu_empty_fraction"
    ours += " host_time_s exposed_host_time_s wasted_tokens preemptions kv_fragmentation_mean kv_fragmentation_max"
    ours += " kv_usage_mean kv_usage_max jain max_service_difference accumulated_difference cancellation_lag_mean_ms"
    ours += " service_difference_window_max service_difference_window_mean service_difference_window_var"
    ours += " cancellation_lag_p99_ms tenants"
    latencies = {
        f"{part}_{figure}_ms"
        for part in ("mean", "median", "std", "p50", "p95", "p99")
        for figure in ("ttft", "tpot", "itl", "e2el", "queue_wait")
    }
    assert {*vllm.split(), *ours.split(), *latencies} <= s.keys()
    assert latencies <= s["tenants"]["b"].keys()
    assert list(s["tenants"]) == ["a", "b"]
