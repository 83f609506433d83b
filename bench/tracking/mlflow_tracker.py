"""One run in MLflow: a handful of batched calls, none of MLflow's global state, nothing logged in the background."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend.records import Records
from bench.tracking.api import RunInfo, Tracker, Workload
from bench.tracking.metrics_map import metrics_of
from bench.tracking.orphans import close_orphans, process_tags
from bench.tracking.signals import killed, shielded
from bench.tracking.store import experiment_id, open_store, store_uri
from bench.tracking.timeline import Timeline, timeline_of

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

PARENT_VARIABLE = "BATCHYARD_PARENT_RUN"
"""Id of the sweep's run, in the environment of the process that runs a job of it."""
PARENT_TAG = "mlflow.parentRunId"

LONGEST_VALUE = 6000  # of a parameter, in MLflow
CUT = " … (cut: the whole is in config.yaml)"
TARGET = "._target_"
BATCH = 100  # parameters in one call


@dataclass(frozen=True, slots=True)
class _Run:
    """One that has started and not ended."""

    client: MlflowClient
    id: str
    info: RunInfo
    began_ms: int


class MlflowTracker(Tracker):
    def __init__(self, uri: str, experiment: str, base: Path) -> None:
        self._uri = uri
        self._experiment = experiment
        self._base = base
        self._run: _Run | None = None

    def start(self, info: RunInfo) -> None:
        uri = store_uri(self._uri, self._base)
        client = open_store(uri)
        experiment = experiment_id(client, uri, self._experiment)
        close_orphans(client, experiment)
        began_ms = _now_ms()
        created = client.create_run(experiment, began_ms, tags=_tags(info), run_name=info.name)
        self._run = run = _Run(client, created.info.run_id, info, began_ms)
        params = _params(info)
        for first in range(0, len(params), BATCH):
            client.log_batch(run.id, params=params[first : first + BATCH])
        client.log_text(run.id, info.config, "config.yaml")

    def describe(self, workload: Workload, tags: Mapping[str, str]) -> None:
        from mlflow.entities import RunTag

        run = self._running()
        profile = {"requests": workload.requests, "tenants": workload.tenants}
        self._data_set(workload.name, workload.digest, workload.source, profile, "workload")
        run.client.log_batch(run.id, tags=[RunTag(name, value) for name, value in tags.items()])

    def finish(self, summary: Mapping[str, Any], records: Records, folder: Path) -> None:
        from mlflow.entities import RunTag

        run = self._running()
        figures, undefined = metrics_of(summary)
        timeline = timeline_of(records, run.info.service_weights)
        tags = [RunTag("undefined", ", ".join(undefined))] if undefined else []
        run.client.log_batch(run.id, metrics=[*bars(figures), *_points(timeline, run.began_ms)], tags=tags)
        run.client.log_artifacts(run.id, str(folder))
        self._end()

    def fail(self, error: BaseException) -> None:
        run, self._run = self._run, None
        if run is None:
            return
        with shielded():
            try:
                run.client.set_terminated(run.id, "KILLED" if killed(error) else "FAILED")
                run.client.set_tag(run.id, "error", f"{type(error).__name__}: {error}"[:LONGEST_VALUE])
                run.client.log_text(run.id, "".join(traceback.format_exception(error)), "error.txt")
            except Exception as trouble:
                error.add_note(f"MLflow run {run.id} could not be closed: {trouble}")

    def _data_set(self, name: str, digest: str, source: str, profile: Mapping[str, object], context: str) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        run = self._running()
        dataset = Dataset(name, digest, "local", json.dumps({"uri": source}), profile=json.dumps(profile))
        run.client.log_inputs(run.id, [DatasetInput(dataset, [InputTag("mlflow.data.context", context)])])

    def _end(self) -> None:
        run = self._running()
        run.client.set_terminated(run.id, "FINISHED")
        self._run = None

    def _running(self) -> _Run:
        if self._run is None:
            raise RuntimeError("tracker: no run is under way; describe and finish belong inside track()")
        return self._run


def _tags(info: RunInfo) -> dict[str, str]:
    tags = {
        **process_tags(),
        "mlflow.source.name": "batchyard",
        "mlflow.source.type": "LOCAL",
        "config_hash": hashlib.sha256(info.config.encode()).hexdigest()[:16],
        **info.tags,
    }
    parent = os.environ.get(PARENT_VARIABLE)
    return {**tags, PARENT_TAG: parent} if parent else tags


def _params(info: RunInfo) -> list[Param]:
    """Plugins by name. The class behind it is left out, whose beginning is all that plots show, unless it was typed."""
    from mlflow.entities import Param

    shown = {name: value for name, value in info.params.items() if not name.endswith(TARGET)}
    own = {name.removesuffix(TARGET): path.rpartition(".")[2] for name, path in info.swept.items() if TARGET in name}
    return [
        Param(re.sub(r"[^\w\-. :/]", "_", name, flags=re.ASCII), _text(value))
        for name, value in {**info.swept, **shown, **own}.items()
    ]


def _text(value: object) -> str:
    """As YAML would have it, cut to what MLflow takes."""
    text = json.dumps(value) if value is None or isinstance(value, bool) else str(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - len(CUT)] + CUT


def bars(figures: Mapping[str, float]) -> list[Metric]:
    from mlflow.entities import Metric

    return [Metric(name, value, _now_ms(), 0) for name, value in figures.items()]


def _points(timeline: Timeline, began_ms: int) -> Iterator[Metric]:
    """The run's own time is MLflow's step and, counted from the start, its clock: both x axes compare runs."""
    from mlflow.entities import Metric

    steps = timeline.steps.tolist()
    for name, values in timeline.series.items():
        for step, value in zip(steps, values.tolist(), strict=True):
            yield Metric(name, value, began_ms + step, step)


def _now_ms() -> int:
    return int(time.time() * 1000)
