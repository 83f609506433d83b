"""What becomes of a run's figures: metrics in sections, and a thinned timeline."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from bench.metrics import MetricOptions, summarise
from bench.tracking.metrics_map import SECTIONS, WORST_TENANT, metrics_of
from bench.tracking.timeline import MAX_POINTS, MAX_TOTAL, timeline_of
from policies.fcfs import FCFS
from traffic_by_hand import MS, run, traffic

KNOWN = {"latency", "throughput", "fairness", "host", "device", "kv", "slo"}


def test_at_most_thirty_metrics_each_in_a_known_section_and_a_key_of_the_summary() -> None:
    summary = summarise(run(traffic(n=3), FCFS()).records, MetricOptions())
    keys = [key for section in SECTIONS.values() for key in section]
    assert set(SECTIONS) == KNOWN
    assert len(keys) + 1 <= 30
    assert [key for key in keys if key not in summary] == []
    defined, undefined = metrics_of(summary)
    assert {*defined, *undefined} == {f"{s}/{key}" for s, keys in SECTIONS.items() for key in keys} | {WORST_TENANT}
    assert defined["throughput/completed"] == 3


@pytest.mark.parametrize("value", [None, math.inf, -math.inf, math.nan])
def test_what_mlflow_would_falsify_is_left_out_and_named(value: float | None) -> None:
    defined, undefined = metrics_of({"jain": value, "duration": 2})
    assert defined == {"throughput/duration": 2.0}
    assert "fairness/jain" in undefined


def test_the_worst_tenant_is_the_one_with_the_longest_tail() -> None:
    tenants = {"a": {"p99_ttft_ms": 5.0}, "b": {"p99_ttft_ms": 70.0}, "never served": {"p99_ttft_ms": None}}
    assert metrics_of({"tenants": tenants})[0][WORST_TENANT] == 70.0


def test_a_timeline_worked_by_hand() -> None:
    """One at a time, sync: plan 3 ms, device 10, commit 2. The second waits until the first has made its 4 tokens.

    The first step plans at 0 and commits at 15: its prefill makes token 1; tokens 2, 3 and 4 commit at 30, 45 and 60.
    """
    records = run(traffic(n=2, prompt=4, output=4), FCFS(), max_num_seqs=1, overlap=False, blocks=10).records
    timeline = timeline_of(records, (1.0, 2.0))
    at = dict(zip(timeline.steps.tolist(), range(len(timeline.steps)), strict=True))
    assert {timeline.steps[0], timeline.steps[-1]} == {0, 120}
    series = {name: values.tolist() for name, values in timeline.series.items()}
    assert [series["timeline/waiting"][at[ms]] for ms in (0, 50, 60, 119)] == [1, 1, 0, 0]
    assert [series["timeline/running"][at[ms]] for ms in (0, 60, 120)] == [1, 1, 0]
    assert [series["timeline/service_t"][at[ms]] for ms in (0, 15, 30, 60, 120)] == [0, 6, 8, 12, 24]
    assert series["timeline/kv_use"][at[20]] == pytest.approx(0.1)  # 5 tokens in one block of 10


def test_a_timeline_is_thin_for_many_tenants_and_long_runs() -> None:
    names = [f"tenant {i}" for i in range(27)]
    work = traffic(n=270, tenant=list(range(27)) * 10, tenants=names, arrival=[i * 100 * MS for i in range(270)])
    timeline = timeline_of(run(work, FCFS()).records, (1.0, 2.0))
    assert len(timeline.steps) <= MAX_POINTS
    assert len(timeline.steps) * len(timeline.series) <= MAX_TOTAL
    assert (np.diff(timeline.steps) > 0).all()


def test_tenants_whose_names_mlflow_refuses_keep_apart() -> None:
    work = traffic(n=2, tenant=[0, 1], tenants=["a/b", "a?b"])
    names = [name for name in timeline_of(run(work, FCFS()).records, (1.0, 2.0)).series if "service" in name]
    assert names == ["timeline/service_a_b_0", "timeline/service_a_b_1"]


def test_a_run_in_which_nothing_was_executed_has_a_timeline() -> None:
    records = run(traffic(prompt=9000, n=1), FCFS()).records  # refused at once
    timeline = timeline_of(records, (1.0, 2.0))
    assert all((values == 0).all() for values in timeline.series.values())


def test_policies_and_predictors_differ_in_the_ten_characters_that_mlflow_plots() -> None:
    conf = Path(__file__).parents[3] / "conf"
    for group in ("policy", "predictor"):
        names = [path.stem[:10] for path in (conf / group).glob("*.yaml")]
        assert names
        assert len(set(names)) == len(names), (group, sorted(names))
