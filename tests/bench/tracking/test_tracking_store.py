"""The store: where it is, how it is made, and that nothing breaks it while it is new."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from bench.errors import BadInput
from bench.tracking.store import experiment_id, open_store, store_uri
from tracked import client_of, runs_of, start, statuses

SMALL = ("workload.requests=20", "tracking=mlflow")


def test_a_relative_path_begins_where_the_command_was_started(tmp_path: Path) -> None:
    assert store_uri("sqlite:///runs/mlflow.db", tmp_path) == f"sqlite:///{tmp_path}/runs/mlflow.db"
    assert store_uri("sqlite:////var/m.db", tmp_path) == "sqlite:////var/m.db"
    assert store_uri("http://tracker:5000", tmp_path) == "http://tracker:5000"


def test_the_environment_overrides_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mine.db")
    assert store_uri("sqlite:///runs/mlflow.db", tmp_path) == f"sqlite:///{tmp_path}/mine.db"


def test_a_new_store_is_in_wal_mode_and_its_artifacts_lie_beside_it(base: Path) -> None:
    file = base / "runs" / "mlflow.db"
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    client = client_of(base)
    experiment = experiment_id(client, f"sqlite:///{file}", "of mine")
    assert client.get_experiment(experiment).artifact_location == (base / "runs/artifacts/of mine").as_uri()
    assert experiment_id(client, f"sqlite:///{file}", "of mine") == experiment


def test_a_deleted_experiment_is_refused_with_the_way_to_restore_it(base: Path) -> None:
    client, uri = client_of(base), f"sqlite:///{base}/runs/mlflow.db"
    experiment = experiment_id(client, uri, "gone")
    client.delete_experiment(experiment)
    with pytest.raises(BadInput, match=f"experiment=gone: was deleted.*mlflow experiments restore -x {experiment}"):
        experiment_id(client, uri, "gone")


def test_a_file_that_is_no_store_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("milk, eggs, bread\n" * 100)
    uri = f"sqlite:///{tmp_path}/notes.db"
    with pytest.raises(BadInput, match=r"no MLflow store at sqlite:///.*notes\.db.*tracking=none"):
        experiment_id(open_store(uri), uri, "batchyard")


def test_six_processes_on_a_fresh_path_make_six_finished_runs(tmp_path: Path) -> None:
    """MLflow's own way breaks here: six of six fail, and the store cannot be opened again."""
    commands = [start(tmp_path, "run", f"seed={seed}", *SMALL) for seed in range(6)]
    with ThreadPoolExecutor(6) as pool:
        said = list(pool.map(lambda command: command.communicate(timeout=300)[0], commands))
    assert [command.returncode for command in commands] == [0] * 6, said
    assert statuses(tmp_path) == ["FINISHED"] * 6
    assert {run.data.params["seed"] for run in runs_of(tmp_path)} == set("012345")


def test_six_workers_of_a_sweep_on_a_fresh_path_make_six_finished_runs_under_one_parent(tmp_path: Path) -> None:
    sweep = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=6", "seed=0,1,2,3,4,5")
    command = start(tmp_path, "run", "-m", *sweep, *SMALL)
    said = command.communicate(timeout=300)[0]
    assert command.returncode == 0, said
    *jobs, parent = runs_of(tmp_path)
    assert parent.info.run_name.startswith("sweep ")
    assert {run.data.tags["mlflow.parentRunId"] for run in jobs} == {parent.info.run_id}
    assert statuses(tmp_path) == ["FINISHED"] * 7
