"""A sweep is a parent run with its jobs as children: made before the jobs, ended whatever ends the sweep."""

from __future__ import annotations

import atexit
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from bench.tracking.mlflow_tracker import PARENT_TAG, PARENT_VARIABLE
from bench.tracking.orphans import close_orphans, process_tags
from bench.tracking.signals import catch_stops, shielded
from bench.tracking.store import experiment_id, open_store, store_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient

DYING_S = 2.0  # how long the workers of a stopped sweep may take to die


class SweepParent(Callback):
    """For ``hydra.callbacks``. Pickled to the workers, it tells the jobs there whose children they are."""

    def __init__(self) -> None:
        self._uri = ""
        self._experiment = ""
        self._parent: str | None = None

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        if config.tracking.kind != "mlflow":
            return
        self._uri = store_uri(config.tracking.uri, Path(config.hydra.runtime.cwd))
        client = open_store(self._uri)
        self._experiment = experiment_id(client, self._uri, config.tracking.experiment)
        close_orphans(client, self._experiment)
        catch_stops()
        overrides = " ".join(config.hydra.overrides.task)
        tags = {**process_tags(), "sweep": overrides, "mlflow.source.name": "batchyard", "mlflow.source.type": "LOCAL"}
        parent = client.create_run(self._experiment, tags=tags, run_name=f"sweep {overrides}"[:250])
        self._parent = parent.info.run_id
        atexit.register(self._end)

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        if self._parent is not None:
            os.environ[PARENT_VARIABLE] = self._parent

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        os.environ.pop(PARENT_VARIABLE, None)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        atexit.unregister(self._end)
        self._end(complete=True)

    def _end(self, complete: bool = False) -> None:
        """Left to the exit of the process where a failure or a stop keeps Hydra from calling `on_multirun_end`."""
        parent, self._parent = self._parent, None
        if parent is None:
            return
        with shielded():
            client = open_store(self._uri)
            states = self._settled(client, parent)
            client.set_terminated(parent, state_of_sweep(states, complete))

    def _settled(self, client: MlflowClient, parent: str) -> set[str]:
        """The states of the jobs, once the workers that a stop has killed are dead and their runs closed."""
        deadline = time.monotonic() + DYING_S
        while True:
            close_orphans(client, self._experiment)
            jobs = client.search_runs([self._experiment], f"tags.`{PARENT_TAG}` = '{parent}'", max_results=50_000)
            states = {job.info.status for job in jobs}
            if "RUNNING" not in states or time.monotonic() > deadline:
                return states
            time.sleep(0.1)


def state_of_sweep(jobs: set[str], complete: bool) -> str:
    if complete and jobs <= {"FINISHED"}:
        return "FINISHED"
    return "KILLED" if jobs & {"KILLED", "RUNNING"} else "FAILED"
