"""Commands that track, as processes, and what stands in their store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Run

from bench.tracking.store import open_store, store_uri

CONFIGURED = "sqlite:///runs/mlflow.db"


def client_of(base: Path) -> MlflowClient:
    return open_store(store_uri(CONFIGURED, base))


def runs_of(base: Path) -> list[Run]:
    """The latest first."""
    client = client_of(base)
    return list(client.search_runs([experiment.experiment_id for experiment in client.search_experiments()]))


def statuses(base: Path) -> list[str]:
    return sorted(run.info.status for run in runs_of(base))


def text_of(base: Path, run: Run, artifact: str) -> str:
    return Path(client_of(base).download_artifacts(run.info.run_id, artifact)).read_text()


def _hear_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(base: Path, *arguments: str) -> subprocess.Popen[str]:
    """`batchyard ARGUMENTS` in `base`, as a process group of its own.

    Ctrl-C reaches it even where it does not reach us: a shell starts what it puts into the background without.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    return subprocess.Popen(
        [sys.executable, "-m", "bench.cli", *arguments],
        cwd=base,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=_hear_interrupts,
    )


def wait_for(condition: Callable[[], bool], within_s: float) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < within_s, f"not within {within_s} s"
        time.sleep(0.05)
