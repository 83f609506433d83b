from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench.tracking.store import open_store


@pytest.fixture(autouse=True)
def no_other_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("store") / "mlflow.db"
    open_store(f"sqlite:///{file}")
    return file


@pytest.fixture
def base(tmp_path: Path, empty_store: Path) -> Path:
    """A folder to start commands in, with a store that is ready: making one takes seconds."""
    (tmp_path / "runs").mkdir()
    shutil.copy(empty_store, tmp_path / "runs" / "mlflow.db")
    return tmp_path
