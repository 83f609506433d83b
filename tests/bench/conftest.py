from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.cli import main
from bench.tracking.store import open_store


@dataclass(frozen=True)
class Told:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line of a refusal: exit code 2, nothing else said, no traceback."""
        assert self.code == 2, self
        [line] = self.err.splitlines()
        return line


Batchyard = Callable[..., Told]


@pytest.fixture
def batchyard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Batchyard:
    """`batchyard run` in this process, started in an empty folder, small and unrecorded unless told otherwise."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, small: bool = True) -> Told:
        given = {argument.split("=")[0] for argument in arguments}
        defaults = {"tracking": "none", **({"workload.requests": "40"} if small else {})}
        added = [f"{key}={value}" for key, value in defaults.items() if key not in given]
        capsys.readouterr()
        code = main(["run", *arguments, *added])
        return Told(code, *capsys.readouterr())

    return run


def summary_of(folder: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


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
