"""The tracking seam: the composition root tells a tracker what runs, what came of it, or what ended it.

with tracker.track(info):
    tracker.describe(workload, {"oracle": "false", "backend": "simulated"})
    ...
    tracker.finish(summary, records, folder)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend.records import Records
from bench.errors import BadInput
from bench.tracking.signals import stoppable
from bench.tracking.store import USUAL


@dataclass
class TrackingSettings:
    """The configuration group `tracking`."""

    kind: str = "mlflow"  # mlflow | none
    uri: str = USUAL  # relative to where the command was started; MLFLOW_TRACKING_URI overrides
    experiment: str = "batchyard"


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What is known before anything is built, so that a run that fails early is recorded too."""

    name: str
    params: Mapping[str, object]
    """Swept and resolved configuration, flat: {"policy": "multi_bin", "policy.max_wait_s": 2.0, "seed": 0}."""
    config: str
    """The whole resolved configuration as YAML: the one place where long values stand uncut."""
    swept: Mapping[str, str] = field(default_factory=dict)
    """What distinguishes this run within its sweep, as typed: {"policy": "multi_bin", "seed": "0"}."""
    tags: Mapping[str, str] = field(default_factory=dict)
    service_weights: tuple[float, float] = (1.0, 2.0)  # of a prompt and of an output token, in the timeline


@dataclass(frozen=True, slots=True)
class Workload:
    """The traffic as a data set: runs with equal digests saw the same requests."""

    name: str
    digest: str  # hash of the traffic's columns, at most 36 characters
    source: str  # path of the trace, or how it was made
    requests: int
    tenants: int


class Tracker(ABC):
    """Records one run. `describe`, `finish` and `fail` belong between `start` and the end."""

    @abstractmethod
    def start(self, info: RunInfo) -> None: ...

    @abstractmethod
    def describe(self, workload: Workload, tags: Mapping[str, str]) -> None:
        """Add what is known once traffic and plugins are built."""

    @abstractmethod
    def finish(self, summary: Mapping[str, Any], records: Records, folder: Path) -> None:
        """Record the results and everything in `folder`, and end the run as successful."""

    @abstractmethod
    def fail(self, error: BaseException) -> None:
        """End the run as failed, or as killed if `error` is Ctrl-C or a signal; a no-op if it has ended."""

    @contextmanager
    def track(self, info: RunInfo) -> Iterator[None]:
        """Start a run; whatever leaves the block by an exception or a signal ends it, and is raised again."""
        with stoppable():
            try:
                self.start(info)
                yield
            except BaseException as error:
                self.fail(error)
                raise


class NullTracker(Tracker):
    """Records nothing."""

    def start(self, info: RunInfo) -> None:
        pass

    def describe(self, workload: Workload, tags: Mapping[str, str]) -> None:
        pass

    def finish(self, summary: Mapping[str, Any], records: Records, folder: Path) -> None:
        pass

    def fail(self, error: BaseException) -> None:
        pass


def open_tracker(settings: TrackingSettings, base: Path) -> Tracker:
    """The tracker that `settings` name; relative paths are resolved against `base`, the starting directory.

    Raises BadInput for an unknown kind. MLflow is imported when the run starts, not here.
    """
    if settings.kind == "none":
        return NullTracker()
    if settings.kind == "mlflow":
        from bench.tracking.mlflow_tracker import MlflowTracker

        return MlflowTracker(settings.uri, settings.experiment, base)
    raise BadInput(f"tracking.kind={settings.kind!r} is unknown: use mlflow or none")
