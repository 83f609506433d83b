"""`batchyard ui` before a browser sees it: refusals, the view it saves, and which sweep it compares."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from bench.tracking.metrics_map import metrics_of
from bench.tracking.mlflow_tracker import PARENT_TAG
from bench.tracking.views import COLUMNS, FIGURES, VIEW, last_sweep, save_view
from bench.ui import main
from tracked import client_of


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 2
    [line] = capsys.readouterr().err.splitlines()
    return line


def test_without_a_store_the_way_to_one_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    said = told(capsys)
    assert said == f"batchyard: no runs yet: there is no {tmp_path}/runs/mlflow.db; `batchyard run` makes one"
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_experiment_and_a_taken_port_are_refused_by_name(
    base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(base)
    assert "--experiment batchyard: not in sqlite:///" in told(capsys)
    client_of(base).create_experiment("batchyard")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port} cannot be listened on" in told(capsys, "--port", str(port))


def test_the_view_shows_metrics_that_there_are(base: Path) -> None:
    client = client_of(base)
    experiment = client.create_experiment("batchyard")
    save_view(client, experiment)
    view = json.loads(client.get_experiment(experiment).tags[f"mlflow.sharedViewState.{VIEW}"])
    assert view["selectedColumns"] == list(COLUMNS)
    ours = {column.split("`")[1] for column in COLUMNS if column.startswith("metrics.")} | set(FIGURES)
    _, known = metrics_of({})
    assert ours <= set(known)


def test_the_last_sweep_with_something_to_compare_is_the_one_compared(base: Path) -> None:
    client = client_of(base)
    experiment = client.create_experiment("batchyard")

    def run(name: str, at: int, parent: str = "", state: str = "FINISHED") -> str:
        tags = {PARENT_TAG: parent} if parent else {}
        made = client.create_run(experiment, start_time=at, tags=tags, run_name=name).info.run_id
        client.set_terminated(made, state)
        return str(made)

    assert last_sweep(client, experiment) == []
    run("a0", 1, "a")
    run("a1", 2, "a")
    b0, b1 = run("b0", 3, "b"), run("b1", 4, "b")
    run("b2", 5, "b", "FAILED")
    run("c0", 6, "c")  # one job is no comparison
    run("alone", 7)
    assert last_sweep(client, experiment) == [b1, b0]
