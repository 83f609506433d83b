"""One training in MLflow: what it learnt from, how good it is, and the model in the registry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from bench.learning.registry import register
from bench.tracking.mlflow_tracker import MlflowTracker, bars

MODEL_FOLDER = "model"


class RowSet(NamedTuple):
    """Rows as a data set: equal digests, equal rows."""

    name: str
    digest: str
    source: str
    rows: int
    context: str
    """training, or test"""


class TrainingTracker(MlflowTracker):
    """`MlflowTracker.track` around it; its `describe` and `finish` are those of runs and not for trainings."""

    def learns_from(self, sets: list[RowSet]) -> None:
        for each in sets:
            self._data_set(each.name, each.digest, each.source, {"rows": each.rows}, each.context)

    def trained(self, figures: Mapping[str, float], folder: Path, name: str | None, alias: str | None) -> str | None:
        """Record everything in `folder`, of which ``model/`` is registered as `name`; its ``models:/NAME/VERSION``."""
        run = self._running()
        run.client.log_batch(run.id, metrics=bars(figures))
        run.client.log_artifacts(run.id, str(folder))
        address = None if name is None else register(run.client, run.id, MODEL_FOLDER, name, alias)
        self._end()
        return address
