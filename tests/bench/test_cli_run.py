"""`batchyard run`: what it leaves behind, once, in a sweep, in workers, and when something breaks."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import yaml

from backend.records import REQUEST_COLUMNS
from tests.bench.conftest import Batchyard, summary_of

STATES = ("completed", "cancelled", "rejected", "failed", "unfinished")
OWN_POLICY = """
from policies.fcfs import FCFS

class Breaks(FCFS):
    def __init__(self, after=None):
        super().__init__()
        self.after = after

    def decide(self, view):
        if self.after is not None and view.step > self.after:
            raise ZeroDivisionError("no batch for you")
        return super().decide(view)
"""


def test_a_run_leaves_summary_tables_config_and_timing(batchyard: Batchyard, tmp_path: Path) -> None:
    told = batchyard("hydra.run.dir=here", "policy=multi_bin")
    assert told.code == 0
    assert told.err == ""
    folder = tmp_path / "here"
    assert {path.name for path in folder.iterdir() if path.is_file()} == {
        "summary.json", "config.yaml", "timing.json", "requests.parquet", "steps.parquet", "service.parquet",
        "backlog.parquet", "holds.parquet", "gaps.parquet",
    }  # fmt: skip
    summary = summary_of(folder)
    assert summary["completed"] == 40
    assert sum(summary[state] for state in STATES) == 40
    assert set(summary["tenants"]) == {"chat", "documents", "code"}
    assert summary["oracle"] is True  # its predictor knows the truth
    assert summary["predictor"]["predictions"] >= 40
    assert summary["n_slowdown"] == 40
    assert summary["slowdown_mean"] >= 1  # nobody is quicker in company than alone
    requests = pd.read_parquet(folder / "requests.parquet")
    assert len(requests) == 40
    assert set(REQUEST_COLUMNS) <= set(requests.columns)
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["policy"]["_target_"] == "policies.multi_bin.MultiBin"
    assert config["predictor"]["seed"] == 0  # resolved, not ${seed}
    assert json.loads((folder / "timing.json").read_text())["total_s"] > 0
    assert str(folder) in told.out


def test_the_default_folder_is_below_runs_and_new_each_time(batchyard: Batchyard, tmp_path: Path) -> None:
    assert batchyard().code == batchyard().code == 0
    folders = {path.parent for path in tmp_path.glob("runs/*/*/summary.json")}
    assert len(folders) == 2


def test_without_truth_and_predictor_the_run_is_not_marked(batchyard: Batchyard, tmp_path: Path) -> None:
    assert batchyard("predictor=none", "hydra.run.dir=here").code == 0
    summary = summary_of(tmp_path / "here")
    assert summary["oracle"] is False
    assert summary["predictor"] is None


def test_a_promise_gives_goodput_and_none_gives_null(batchyard: Batchyard, tmp_path: Path) -> None:
    assert batchyard("hydra.run.dir=a").code == 0
    assert batchyard("hydra.run.dir=b", "slo.default.ttft_ms=100000").code == 0
    assert batchyard("hydra.run.dir=c", "slo.default.ttft_ms=0.001").code == 0
    none, all_kept, none_kept = (summary_of(tmp_path / name) for name in "abc")
    assert none["request_goodput"] is None
    assert all_kept["request_goodput"] == all_kept["request_throughput"] > 0
    assert none_kept["request_goodput"] == 0


def test_paths_begin_where_the_command_was_started(batchyard: Batchyard, tmp_path: Path) -> None:
    (tmp_path / "my.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,10,3\n0.5,20,4\n")
    assert batchyard("workload=trace", "workload.path=my.csv", "hydra.run.dir=here", small=False).code == 0
    summary = summary_of(tmp_path / "here")
    assert (summary["completed"], summary["total_input_tokens"], summary["total_output_tokens"]) == (2, 30, 7)


def test_a_bad_row_of_a_trace_is_refused_with_file_and_line(batchyard: Batchyard, tmp_path: Path) -> None:
    (tmp_path / "my.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,10,3\n0.5,12.5,4\n")
    line = batchyard("workload=trace", "workload.path=my.csv", small=False).complaint
    assert "my.csv" in line
    assert "3" in line
    assert "12.5" in line


def test_a_sweep_runs_every_combination_and_ends_with_one_table(batchyard: Batchyard, tmp_path: Path) -> None:
    told = batchyard("-m", "policy=fcfs,fair_share", "seed=0,1", "hydra.sweep.dir=sweep")
    assert told.code == 0
    assert len(list(tmp_path.glob("sweep/[0-3]/summary.json"))) == 4
    assert told.out.count("output tok/s") == 1
    rows = [line for line in told.out.splitlines() if line.startswith("│")]
    assert [row.split("│")[1].strip() for row in rows] == ["fcfs", "fair_share"]  # seeds are averaged over
    assert all(row.split("│")[2].strip() == "2" for row in rows)


@pytest.mark.parametrize("launcher", [[], ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]], ids=["here", "joblib"])
def test_when_a_job_breaks_the_others_run_on(launcher: list[str], batchyard: Batchyard, tmp_path: Path) -> None:
    (tmp_path / "breaking.py").write_text(OWN_POLICY)
    told = batchyard(
        "-m", "policy._target_=breaking.Breaks", "+policy.after=3,null", "seed=0,1", "hydra.sweep.dir=sweep", *launcher
    )
    assert told.code == 1
    assert {path.parent.name for path in tmp_path.glob("sweep/*/summary.json")} == {"2", "3"}
    assert {path.parent.name for path in tmp_path.glob("sweep/*/error.txt")} == {"0", "1"}
    assert "no batch for you" in (tmp_path / "sweep/0/error.txt").read_text()
    assert "2 failed" in told.out
    if not launcher:
        assert "job 0 (policy._target_=breaking.Breaks" in told.err
        assert "ZeroDivisionError: no batch for you" in told.err


def test_a_defect_of_a_policy_shows_its_traceback(batchyard: Batchyard, tmp_path: Path) -> None:
    (tmp_path / "breaking_alone.py").write_text(OWN_POLICY)
    told = batchyard("policy._target_=breaking_alone.Breaks", "+policy.after=0")
    assert told.code == 1
    assert "breaking_alone.py" in told.err
    assert "ZeroDivisionError: no batch for you" in told.err


def test_a_policy_that_breaks_the_contract_is_told_in_one_line(batchyard: Batchyard, tmp_path: Path) -> None:
    (tmp_path / "lazy.py").write_text(
        "from policies.api import Decision, Policy\n\n"
        "class Lazy(Policy):\n    def decide(self, view):\n        return Decision()\n"
    )
    told = batchyard("policy._target_=lazy.Lazy")
    assert told.code == 1
    [line] = told.err.splitlines()
    assert "Lazy" in line
    assert "40 requests wait" in line


def test_a_failed_job_that_is_run_again_leaves_no_old_traceback(batchyard: Batchyard, tmp_path: Path) -> None:
    (tmp_path / "breaking_once.py").write_text(OWN_POLICY)
    sweep = ["-m", "policy._target_=breaking_once.Breaks", "hydra.sweep.dir=sweep", "seed=0"]
    assert batchyard(*sweep, "+policy.after=3").code == 1
    assert (tmp_path / "sweep/0/error.txt").exists()
    assert batchyard(*sweep).code == 0
    assert not (tmp_path / "sweep/0/error.txt").exists()


def test_a_sweeper_can_optimise_a_figure(batchyard: Batchyard, tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="the extra `optuna` is not installed")
    told = batchyard(
        "-m", "hydra/sweeper=optuna", "hydra.sweeper.n_trials=3", "hydra.sweeper.n_jobs=1", "objective=p99_ttft_ms",
        "engine.max_num_seqs=choice(2,64)", "hydra.sweep.dir=sweep",
    )  # fmt: skip
    assert told.code == 0
    best = yaml.safe_load((tmp_path / "sweep/optimization_results.yaml").read_text())["best_value"]
    assert best == min(summary_of(tmp_path / "sweep" / str(job))["p99_ttft_ms"] for job in range(3))


def test_the_configuration_can_be_looked_at_without_running(batchyard: Batchyard, tmp_path: Path) -> None:
    told = batchyard("--cfg", "job", "policy=multi_bin", "engine=static")
    assert told.code == 0
    config = yaml.safe_load(told.out)
    assert config["policy"]["bins"] == 4
    assert config["engine"]["batching"] == "static"
    assert not list(tmp_path.iterdir())
