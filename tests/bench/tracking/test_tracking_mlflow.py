"""What one run leaves in MLflow, read back."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from bench.metrics import MetricOptions, summarise
from bench.output import write_results
from bench.tracking.api import RunInfo, Tracker, TrackingSettings, Workload, open_tracker
from bench.tracking.mlflow_tracker import MlflowTracker
from bench.tracking.provenance import git_commit, provenance, source_hash, traffic_digest
from policies.fcfs import FCFS
from policies.oracle_length import OracleLength
from predictors.constant import Constant
from tracked import CONFIGURED, client_of, runs_of, text_of
from traffic_by_hand import run, traffic

WORK = traffic(n=4, prompt=[4, 8, 12, 16])
WORKLOAD = Workload("by hand", traffic_digest(WORK), "here", 4, 1)


def track(base: Path, tracker: Tracker, *, info: RunInfo | None = None, **figures: object) -> None:
    """A whole run, some of its figures replaced."""
    records = run(WORK, FCFS()).records
    summary = {**summarise(records, MetricOptions()), **figures}
    folder = base / "folder"
    write_results(folder, summarise(records, MetricOptions()), records, "seed: 0\n", {"total_s": 1.0})
    with tracker.track(info or RunInfo("r", {"policy": "fcfs"}, "seed: 0\n")):
        tracker.describe(WORKLOAD, provenance(FCFS(), None, WORK, "simulated", base))
        tracker.finish(summary, records, folder)


def tracker_at(base: Path) -> MlflowTracker:
    return MlflowTracker(CONFIGURED, "batchyard", base)


def test_a_run_is_recorded_whole(base: Path) -> None:
    params: Mapping[str, object] = {
        "policy": "multi_bin", "policy.max_wait_s": 2.5, "engine.overlap": True, "horizon_s": None, "odd(key)": "x",
        "policy._target_": "policies.multi_bin.MultiBin",
    }  # fmt: skip
    track(base, tracker_at(base), info=RunInfo("multi_bin seed=3", params, "seed: 3\n", {"seed": "3"}))
    [found] = runs_of(base)
    assert (found.info.run_name, found.info.status) == ("multi_bin seed=3", "FINISHED")
    assert found.data.params == {
        "policy": "multi_bin", "policy.max_wait_s": "2.5", "engine.overlap": "true", "horizon_s": "null",
        "odd_key_": "x", "seed": "3",
    }  # fmt: skip
    tags = found.data.tags
    assert (tags["oracle"], tags["backend"], tags["trace_hash"]) == ("false", "simulated", traffic_digest(WORK))
    assert tags["policy_source_hash"] == source_hash(FCFS)
    [used] = found.inputs.dataset_inputs
    assert (used.dataset.name, used.dataset.digest) == ("by hand", traffic_digest(WORK))
    kept = {artifact.path for artifact in client_of(base).list_artifacts(found.info.run_id)}
    assert kept >= {"summary.json", "config.yaml", "timing.json", "requests.parquet", "steps.parquet"}
    assert (base / "runs/artifacts/batchyard" / found.info.run_id / "artifacts/summary.json").is_file()


def test_a_plugin_given_by_its_path_is_called_by_its_class(base: Path) -> None:
    params = {"policy": "fcfs", "policy._target_": "my.own.Slow"}
    track(base, tracker_at(base), info=RunInfo("r", params, "", {"policy._target_": "my.own.Slow"}))
    assert runs_of(base)[0].data.params == {"policy": "Slow", "policy._target_": "my.own.Slow"}


def test_figures_have_no_step_and_the_timeline_has_the_time_as_its_step(base: Path) -> None:
    track(base, tracker_at(base))
    client, [found] = client_of(base), runs_of(base)
    [bar] = client.get_metric_history(found.info.run_id, "latency/p99_ttft_ms")
    assert bar.step == 0
    line = client.get_metric_history(found.info.run_id, "timeline/waiting")
    assert max(point.step for point in line) >= 1  # otherwise MLflow draws a bar
    assert {point.timestamp - line[0].timestamp for point in line} == {point.step for point in line}
    sections = {name.split("/")[0] for name in found.data.metrics}
    assert sections == {"latency", "throughput", "fairness", "host", "device", "kv", "timeline"}  # no SLO was set


def test_what_is_undefined_is_left_out_and_named(base: Path) -> None:
    track(base, tracker_at(base), jain=math.nan, mean_ttft_ms=math.inf, request_goodput=None)
    [found] = runs_of(base)
    missing = {"fairness/jain", "latency/mean_ttft_ms", "slo/request_goodput"}
    assert missing <= set(found.data.tags["undefined"].split(", "))
    assert not missing & found.data.metrics.keys()
    assert all(math.isfinite(value) and value < 1e300 for value in found.data.metrics.values())


def test_configs_that_differ_beyond_what_mlflow_keeps_can_be_told_apart(base: Path) -> None:
    for end in "ab":
        text = "x" * 7000 + end
        track(base, tracker_at(base), info=RunInfo(end, {"long": text}, f"long: {text}\n"))
    b, a = runs_of(base)
    assert len(a.data.params["long"]) == 6000
    assert a.data.params["long"].endswith("(cut: the whole is in config.yaml)")
    assert a.data.tags["config_hash"] != b.data.tags["config_hash"]


def test_a_failure_is_recorded_with_its_traceback_and_raised_again(base: Path) -> None:
    tracker = tracker_at(base)
    with pytest.raises(ZeroDivisionError), tracker.track(RunInfo("r", {}, "whole: config\n")):
        print(1 // 0)
    [found] = runs_of(base)
    assert found.info.status == "FAILED"
    assert found.data.tags["error"].startswith("ZeroDivisionError: ")
    assert "print(1 // 0)" in text_of(base, found, "error.txt")
    assert text_of(base, found, "config.yaml") == "whole: config\n"


def test_tracking_a_run_takes_a_fraction_of_a_second(base: Path) -> None:
    """0.15 to 0.3 s on a quiet machine; the best of three, with room for a busy one."""
    records = run(WORK, FCFS()).records
    summary = summarise(records, MetricOptions())
    write_results(base / "folder", summary, records, "seed: 0\n", {})
    info = RunInfo("r", {f"key {i}": i for i in range(60)}, "seed: 0\n")
    took = []
    for _ in range(3):
        tracker, began = tracker_at(base), time.perf_counter()
        with tracker.track(info):
            tracker.describe(WORKLOAD, {"backend": "simulated"})
            tracker.finish(summary, records, base / "folder")
        took.append(time.perf_counter() - began)
    assert min(took) < 1.0, took


def test_the_run_is_marked_as_oracle_if_the_policy_or_the_predictor_knows_the_truth(base: Path) -> None:
    knowing = Constant(tokens=10)
    knowing.needs = frozenset({"oracle"})
    tags = [
        provenance(policy, predictor, WORK, "simulated", base)["oracle"]
        for policy, predictor in (
            (FCFS(), None),
            (FCFS(), Constant(tokens=10)),
            (OracleLength(), None),
            (FCFS(), knowing),
        )
    ]
    assert tags == ["false", "false", "true", "true"]


def test_equal_traffic_has_equal_hashes_and_any_other_does_not() -> None:
    def digest(**columns: object) -> str:
        return traffic_digest(traffic(n=4, **columns))  # type: ignore[arg-type]

    others = [digest(prompt=5), digest(arrival=[0, 0, 0, 1]), digest(tenants=["u"]), digest(prompts=["a"] * 4)]
    assert digest() == digest()
    assert len({digest(), *others, digest(concurrency=2)}) == 6


def test_outside_of_a_repository_there_is_no_commit(tmp_path: Path) -> None:
    assert git_commit(tmp_path) is None


def test_nothing_is_recorded_without_tracking_and_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    track(tmp_path, open_tracker(TrackingSettings(kind="none"), tmp_path))
    assert not (tmp_path / "runs").exists()
    with pytest.raises(ValueError, match=r"tracking\.kind='wandb' is unknown: use mlflow or none"):
        open_tracker(TrackingSettings(kind="wandb"), tmp_path)
