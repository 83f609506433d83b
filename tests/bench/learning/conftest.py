from __future__ import annotations

from pathlib import Path

import pytest

from bench.cli import main
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


@pytest.fixture
def base(base: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, and started in."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(base)
    return base


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]):
    """Any command in this process."""

    def said(*arguments: str) -> Told:
        capsys.readouterr()
        code = main(arguments)
        return Told(code, *capsys.readouterr())

    return said
