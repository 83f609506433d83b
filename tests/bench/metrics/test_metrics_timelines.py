"""The worked timelines (plan 3 ms, commit 2 ms, device 10 ms), as records, give the figures that stand beside them."""

from __future__ import annotations

import pytest

from bench.metrics import MetricOptions, summarise


def summary(records):
    return summarise(records, MetricOptions())


def test_two_requests_in_sync(by_hand):
    step = {"host": 5, "exposed": 5}
    records = by_hand(
        [
            {"output_tokens": 3, "scheduled": 3, "first_token": 15, "last_token": 45, "ended": 45, "freed": 45},
            {"output_tokens": 2, "scheduled": 3, "first_token": 15, "last_token": 30, "ended": 30, "freed": 30},
        ],
        [
            {"planned": 0, "started": 3, "ended": 13, "committed": 15, "tokens": 2, **step},
            {"planned": 15, "started": 18, "ended": 28, "committed": 30, "tokens": 2, "gaps": 2, **step},
            {"planned": 30, "started": 33, "ended": 43, "committed": 45, "tokens": 1, "gaps": 1, **step},
        ],
    )
    s = summary(records)
    assert s["duration"] == 0.045
    assert s["gpu_busy_fraction"] == pytest.approx(30 / 45)
    assert s["gpu_idle_fraction"] == pytest.approx(1 / 3)
    assert s["gpu_empty_fraction"] == 0
    assert (s["mean_ttft_ms"], s["n_ttft"]) == (15, 2)
    assert (s["mean_tpot_ms"], s["n_tpot"]) == (15, 2)
    assert (s["mean_itl_ms"], s["n_itl"], s["max_itl_ms"]) == (15, 3, 15)
    assert (s["mean_queue_wait_ms"], s["mean_e2el_ms"]) == (3, 37.5)
    assert (s["host_time_s"], s["exposed_host_time_s"], s["host_bound"]) == (0.015, 0.015, False)
    assert (s["wasted_tokens"], s["total_output_tokens"], s["steps"]) == (0, 5, 3)


def test_two_requests_under_overlap_waste_one_slot_past_the_window(by_hand):
    records = by_hand(
        [
            {"output_tokens": 3, "scheduled": 3, "first_token": 15, "last_token": 35, "ended": 35, "freed": 45},
            {"output_tokens": 2, "scheduled": 3, "first_token": 15, "last_token": 25, "ended": 25, "freed": 25},
        ],
        [
            {"planned": 0, "started": 3, "ended": 13, "committed": 15, "tokens": 2, "host": 5, "exposed": 3},
            {"planned": 3, "started": 13, "ended": 23, "committed": 25, "tokens": 2, "gaps": 2, "host": 5},
            {"planned": 15, "started": 23, "ended": 33, "committed": 35, "tokens": 1, "gaps": 1, "host": 5},
            {"planned": 25, "started": 33, "ended": 43, "committed": 45, "wasted": 1, "host": 5, "exposed": 2},
        ],
    )
    s = summary(records)
    assert s["duration"] == 0.035
    assert s["gpu_busy_fraction"] == pytest.approx(32 / 35)
    assert s["gpu_idle_fraction"] == pytest.approx(3 / 35)
    assert s["gpu_empty_fraction"] == 0
    assert (s["mean_ttft_ms"], s["max_tpot_ms"], s["mean_itl_ms"]) == (15, 10, 10)
    assert (s["wasted_tokens"], s["total_output_tokens"]) == (1, 5)


@pytest.mark.parametrize(
    ("requests_end", "row", "busy", "idle", "exposed", "host_bound"),
    [
        (1500, {"started": 3, "ended": 1498, "committed": 1500, "exposed": 500}, 1000 / 1500, 1 / 3, 0.5, False),
        (1005, {"started": 3, "ended": 1003, "committed": 1005, "exposed": 5}, 1000 / 1005, 5 / 1005, 0.005, False),
    ],
    ids=["sync", "overlap"],
)
def test_host_work_of_a_hundred_steps(by_hand, requests_end, row, busy, idle, exposed, host_bound):
    request = {
        "output_tokens": 100,
        "scheduled": 3,
        "first_token": 15,
        "last_token": requests_end,
        "ended": requests_end,
    }
    step = {"steps": 100, "planned": 0, "busy": 1000, "host": 500, "tokens": 100, "gaps": 99}
    s = summary(by_hand([request], [step | row]))
    assert s["gpu_busy_fraction"] == pytest.approx(busy)
    assert s["gpu_idle_fraction"] == pytest.approx(idle)
    assert (s["host_time_s"], s["exposed_host_time_s"], s["host_bound"]) == (0.5, exposed, host_bound)


def test_a_host_slower_than_the_device_is_called_host_bound(by_hand):
    """Device 4, host 5, overlap: a step every 5 ms, idle 20%."""
    request = {"output_tokens": 100, "scheduled": 3, "first_token": 9, "last_token": 504, "ended": 504}
    step = {"steps": 100, "planned": 0, "started": 3, "ended": 502, "committed": 504, "busy": 400, "host": 500}
    s = summary(by_hand([request], [step]))
    assert s["host_bound"] is True
    assert s["gpu_idle_fraction"] == pytest.approx(0.2, abs=0.01)


@pytest.mark.parametrize(
    ("last_made", "freed", "lags"), [(28, 30, (8, 10)), (33, 35, (13, 15))], ids=["sync", "overlap"]
)
def test_cancel_at_20_ms(by_hand, last_made, freed, lags):
    gone = {"state": "cancelled", "output_tokens": 1, "made_tokens": 2, "scheduled": 3, "first_token": 15}
    gone |= {"last_token": 15, "cancel_called": 20, "ended": 20, "last_made": last_made, "freed": freed}
    s = summary(by_hand([gone]))
    assert (s["cancellation_lag_mean_ms"], s["blocks_freed_lag_mean_ms"]) == lags
    assert (s["n_cancellation_lag"], s["cancelled"], s["completed"]) == (1, 1, 0)
    assert s["mean_e2el_ms"] is None
