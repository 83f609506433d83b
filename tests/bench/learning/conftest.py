from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench.cli import main
from bench.tracking.store import open_store
from predictors.corpus import make_corpus
from predictors.learned import LearnedConfig
from predictors.store import save
from predictors.training import fit
from tests.bench.conftest import Told

QUICK = ["predictor.rounds=40", "predictor.topics=10", "predictor.calibration=100"]
"""Of a training: a second."""


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small predictor of texts, trained on the corpus."""
    rows = make_corpus(1500, seed=3, tenants=("plain",)).rows
    config = LearnedConfig(features=("text",), rounds=40, topics=10, calibration=300)
    return save(fit(rows, config), tmp_path_factory.mktemp("predictor") / "model")


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("store") / "mlflow.db"
    open_store(f"sqlite:///{file}")
    return file


@pytest.fixture
def base(tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to start commands in, with a store that is ready: making one takes seconds."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    shutil.copy(empty_store, tmp_path / "runs" / "mlflow.db")
    return tmp_path


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]):
    """Any command in this process."""

    def said(*arguments: str) -> Told:
        capsys.readouterr()
        code = main(arguments)
        return Told(code, *capsys.readouterr())

    return said
