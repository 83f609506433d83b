"""Finished runs, wherever they are kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pandas as pd
import yaml

from bench.errors import BadInput, first_line
from bench.output import CONFIG, SUMMARY
from bench.tracking.mlflow_tracker import PARENT_TAG
from bench.tracking.store import missing_file, open_store, store_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient

REQUESTS = "requests.parquet"
RUN_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class FinishedRun:
    name: str  # its folder as given, or its id
    model: str  # that made the answers
    requests: pd.DataFrame  # as backend.records has them


def find_runs(sources: Sequence[str], uri: str, base: Path) -> Iterator[FinishedRun]:
    """The runs at `sources`: folders of runs or sweeps (relative to `base`), or ids of runs or sweeps in the store.

    Raises BadInput for a source that is no finished run.
    """
    for source in sources:
        folder = base / source
        if folder.is_dir():
            yield from _below(folder, source)
        elif RUN_ID.fullmatch(source):
            yield from _tracked(source, store_uri(uri, base))
        else:
            raise BadInput(f"{source}: neither a folder nor the id of an MLflow run")


def _below(folder: Path, source: str) -> Iterator[FinishedRun]:
    found = [folder] if (folder / SUMMARY).exists() else sorted(path.parent for path in folder.glob(f"*/{SUMMARY}"))
    if not found:
        raise BadInput(f"{source}: no finished run: neither it nor a folder in it has a {SUMMARY}")
    for place in found:
        yield _read(place, source if place == folder else f"{source.rstrip('/')}/{place.name}")


def _read(folder: Path, name: str) -> FinishedRun:
    try:
        requests = pd.read_parquet(folder / REQUESTS)
        config: dict[str, Any] = yaml.safe_load((folder / CONFIG).read_text(encoding="utf-8"))
        return FinishedRun(name, str(config["backend"]["model"]), requests)
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        raise BadInput(f"{name}: not what a run leaves: {type(error).__name__}: {error}") from error


def _tracked(run: str, uri: str) -> Iterator[FinishedRun]:
    if file := missing_file(uri):
        raise BadInput(f"{run}: there is no store {file}; name another with --uri")
    client = open_store(uri)
    from mlflow.exceptions import MlflowException

    try:
        ids = _finished(client, run)
        if not ids:
            raise BadInput(f"{run}: has not finished in {uri}")
        for each in ids:
            with TemporaryDirectory() as folder:
                for artifact in (REQUESTS, CONFIG):
                    client.download_artifacts(each, artifact, folder)
                yield _read(Path(folder), each)
    except (MlflowException, OSError) as error:
        raise BadInput(f"{run}: cannot be read from {uri}: {first_line(error)}") from error


def _finished(client: MlflowClient, run: str) -> list[str]:
    """A run itself, or the finished jobs of a sweep."""
    found = client.get_run(run)
    jobs = client.search_runs([found.info.experiment_id], f"tags.`{PARENT_TAG}` = '{run}'", max_results=50_000)
    return [each.info.run_id for each in jobs or [found] if each.info.status == "FINISHED"]
