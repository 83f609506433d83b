"""The MLflow store: one SQLite file, made whole before anybody writes to it.

A cold store that several processes open at once breaks for good, so it is built beside its place, under a lock, and
moved there when it is complete.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from bench.errors import BadInput, first_line

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment

SQLITE = "sqlite:///"
USUAL = f"{SQLITE}runs/mlflow.db"
"""The store where nothing else is said."""
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_AGENT_HINT": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
"""No telemetry, no hints, no tales of table creation, no bar for a file of a moment; what the user has set stays."""


def store_uri(configured: str, base: Path) -> str:
    """MLFLOW_TRACKING_URI if set, else `configured`; the path of a SQLite file made absolute against `base`."""
    uri = os.environ.get("MLFLOW_TRACKING_URI") or configured
    file = _sqlite_file(uri)
    return uri if file is None else f"{SQLITE}{(base / file).resolve()}"


def missing_file(uri: str) -> Path | None:
    """The SQLite file of the store at `uri` if it is not there: `open_store` would make it, and it would be empty."""
    file = _sqlite_file(uri)
    return None if file is None or Path(file).exists() else Path(file)


def open_store(uri: str) -> MlflowClient:
    """A client of the store at `uri` (as `store_uri` gives it); a SQLite file that is not there is created.

    Raises BadInput if that cannot be done. Imports MLflow: seconds, the first time.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    with _naming(uri):
        if file := _sqlite_file(uri):
            _create_once(Path(file))
        return MlflowClient(uri)


def experiment_id(client: MlflowClient, uri: str, name: str) -> str:
    """The experiment called `name`, created if need be; its artifacts lie beside a SQLite file, at an absolute path.

    Raises BadInput if it was deleted.
    """
    with _naming(uri):
        found = client.get_experiment_by_name(name) or _create_experiment(client, uri, name)
    if found.lifecycle_stage != "active":
        restore = f"MLFLOW_TRACKING_URI={uri} mlflow experiments restore -x {found.experiment_id}"
        raise BadInput(f"tracking.experiment={name}: was deleted in {uri}; restore it ({restore}) or choose another")
    return str(found.experiment_id)


def _create_experiment(client: MlflowClient, uri: str, name: str) -> Experiment:
    from mlflow.exceptions import MlflowException

    file = _sqlite_file(uri)
    location = None if file is None else (Path(file).parent / "artifacts" / name).as_uri()
    try:
        return client.get_experiment(client.create_experiment(name, artifact_location=location))
    except MlflowException:
        created = client.get_experiment_by_name(name)
        if created is None:
            raise
        return created  # by another process, a moment ago


@contextmanager
def _naming(uri: str) -> Iterator[None]:
    """What goes wrong inside is told as what it is to the user: a store that cannot be used."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, sqlite3.Error, OSError) as error:
        why = first_line(error)
        raise BadInput(f"tracking: no MLflow store at {uri}: {why}; set tracking.uri, or tracking=none") from error


def _sqlite_file(uri: str) -> str | None:
    return uri.removeprefix(SQLITE) if uri.startswith(SQLITE) else None


def _create_once(file: Path) -> None:
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{file}.lock"):
        if not file.exists():
            half = file.with_name(f"{file.name}.half")
            half.unlink(missing_ok=True)  # of a process that was killed at this point
            _create(half, artifacts=file.parent / "artifacts")
            os.replace(half, file)


def _create(file: Path, artifacts: Path) -> None:
    """In WAL mode, which stays with the file: readers and a writer do not block each other."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    _execute(file, "PRAGMA journal_mode=WAL")
    store = SqlAlchemyStore(f"{SQLITE}{file}", artifacts.as_uri())  # type: ignore[no-untyped-call]
    store.engine.dispose()
    _execute(file, "PRAGMA wal_checkpoint(TRUNCATE)")


def _execute(file: Path, statement: str) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(statement)
