"""Where the time of the window went, and what the KV pool held."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.devicetime import device_time
from bench.metrics import MetricOptions, summarise
from bench.population import Population, Window
from bench.stepclock import StepClock

MS = 10**9


@st.composite
def device_rows(draw):
    """Rows of equal steps, one after another, on a grid of milliseconds; and the busy milliseconds one by one."""
    now, rows, busy = draw(st.integers(0, 5)), [], set()
    for _ in range(draw(st.integers(0, 6))):
        steps, work, idle = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(0, 3))
        period = work + idle
        ended = now + period * (steps - 1) + work
        lag = draw(st.integers(0, 2))
        rows.append({"steps": steps, "started": now, "ended": ended, "busy": steps * work, "committed": ended + lag})
        busy |= {now + period * i + j for i in range(steps) for j in range(work)}
        now = ended + lag + draw(st.integers(0, 5))
    return rows, busy


spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), min_size=1, max_size=6)


@given(device_rows(), spans, spans, st.integers(0, 30))
def test_busy_stalled_and_empty_are_the_window(by_hand, table, lives, holds, start):
    rows, busy = table
    requests = [{"state": "cancelled", "arrival": a, "ended": a + d} for a, d in lives]
    records = by_hand(requests, rows, holds=[(a, a + d) for a, d in holds])
    end = max(records.end, start * MS)
    window, clock = Window(start * MS, end), StepClock(records.steps)
    time = device_time(records, Population.of(records, window, clock, None), clock, window)

    inside = set(range(start, end // MS))
    live = {t for a, d in lives for t in range(a, a + d)}
    held = {t for a, d in holds for t in range(a, a + d)}
    idle = inside - busy
    expected = (inside & busy, idle & live, idle - live, idle & live & held)
    assert tuple(time) == tuple(MS * len(part) for part in expected)
    assert time.busy + time.stalled + time.empty == window.duration


@given(device_rows(), st.lists(st.integers(0, 120), min_size=1))
def test_the_clock_counts_steps_as_they_commit(by_hand, table, moments):
    rows, _ = table
    records = by_hand([], rows)
    committed = [
        row["committed"]
        - i * ((row["ended"] - row["started"] - row["busy"] // row["steps"]) // max(row["steps"] - 1, 1))
        for row in rows
        for i in range(row["steps"])
    ]
    counted = StepClock(records.steps).committed_by(np.array(moments) * MS)
    assert counted.tolist() == [sum(c <= t for c in committed) for t in moments]


def test_a_device_that_computes_for_nobody_is_busy_and_not_empty(by_hand):
    """A wasted batch runs to 43 while nobody is there from 35; the next request comes at 40."""
    first = {"output_tokens": 1, "scheduled": 0, "first_token": 35, "last_token": 35, "ended": 35}
    second = {"state": "cancelled", "arrival": 40, "ended": 50}
    steps = [{"started": 0, "ended": 33, "committed": 35}, {"started": 33, "ended": 43, "committed": 45}]
    s = summarise(by_hand([first, second], steps), MetricOptions())
    assert s["gpu_busy_fraction"] == pytest.approx(43 / 50)
    assert s["gpu_idle_fraction"] == pytest.approx(7 / 50)
    assert s["gpu_empty_fraction"] == 0


def test_a_deliberate_hold_is_a_named_part_of_the_stall(by_hand):
    request = {"scheduled": 20, "output_tokens": 1, "first_token": 35, "last_token": 35, "ended": 35}
    step = {"planned": 20, "started": 23, "ended": 33, "committed": 35, "host": 5}
    s = summarise(by_hand([request], [step], holds=[(0, 20)]), MetricOptions())
    assert s["gpu_idle_fraction"] == pytest.approx(25 / 35)
    assert s["gpu_hold_fraction"] == pytest.approx(20 / 35)


def test_fragmentation_is_weighted_by_time_and_usage_by_slots(by_hand):
    """A pool of 4 blocks of 16: 1 for 10 ms, a quarter of it written, then 2 for 30 ms, 3/4 written, then none."""
    request = {"scheduled": 0, "output_tokens": 2, "first_token": 10, "last_token": 40, "ended": 80}
    us = 1000
    steps = [
        {"started": 0, "ended": 10, "kv_time": 10, "kv_blocks": 1, "kv_allocated_time": 16 * 10 * us}
        | {"fragmentation_time": 7.5, "fragmentation_max": 0.75},
        {"started": 10, "ended": 40, "kv_time": 30, "kv_blocks": 2, "kv_allocated_time": 32 * 30 * us}
        | {"fragmentation_time": 7.5, "fragmentation_max": 0.5},
    ]
    s = summarise(by_hand([request], steps, pool=(4, 16)), MetricOptions())
    assert s["kv_fragmentation_mean"] == pytest.approx(15 / 40)
    assert s["kv_fragmentation_max"] == 0.75
    assert s["kv_usage_mean"] == pytest.approx((0.25 * 10 + 0.5 * 30) / 80)
    assert s["kv_usage_max"] == 0.5
    assert summarise(by_hand([request], steps), MetricOptions())["kv_usage_mean"] is None
