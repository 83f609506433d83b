"""One run, from its configuration to its folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from backend.records import Records
from backend.simulation import Progress
from bench.compose import Experiment, composed, typed
from bench.config import Config
from bench.errors import BadInput, named
from bench.metrics import summarise
from bench.output import write_results
from bench.tracking.api import RunInfo, Workload, open_tracker
from bench.tracking.provenance import provenance, traffic_digest
from bench.traffic.config import TraceConfig

UNTOLD = ("tracking.", "metrics.slos.", "backend.rehearsals", "predictor.store")
"""Keys that are no parameters of a run: where things are recorded, and a second name of the group `slo`."""
UNNAMED = ("policy=", "policy._target_=", "experiment=")
"""Overrides that the name of a run does not repeat."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a run is called, and where it stands."""

    folder: Path
    """Of its results."""
    base: Path
    """Where the command was started: relative paths begin here."""
    choices: Mapping[str, str]
    """The option chosen in each group: {"policy": "multi_bin", ...}."""
    overrides: Sequence[str] = ()
    """As typed, or as a sweep chose them: ["policy=multi_bin", "seed=0"]."""


def run(settings: DictConfig, job: Job, progress: Progress | None = None) -> dict[str, Any]:
    """Run it, fill its folder, and give the summary. Raises BadInput before anything is written."""
    began = perf_counter()
    config = typed(settings)
    text = OmegaConf.to_yaml(settings, resolve=True)
    with named("tracking"):
        tracker = open_tracker(config.tracking, job.base)
    with tracker.track(_info(config, text, job)), composed(config, job.choices, job.base, progress) as experiment:
        tracker.describe(_workload(experiment, job), _tags(experiment, job))
        built = perf_counter()
        result = experiment.backend.run(
            experiment.workload.traffic,
            experiment.policy,
            config.engine,
            predictor=experiment.predictor,
            prediction=config.prediction,
            seed=config.seed,
            progress=progress,
        )
        summary = _summary(experiment, result.records)
        timing = {
            **result.timing,
            **_predictor_time(experiment),
            "setup_s": built - began,
            "total_s": perf_counter() - began,
        }
        write_results(job.folder, summary, result.records, text, timing)
        tracker.finish(summary, result.records, job.folder)
    return summary


def objective(config: DictConfig, summary: Mapping[str, Any]) -> float | None:
    """The figure that a sweeper optimises, if one is named."""
    name = config.objective
    if name is None:
        return None
    value = summary.get(name)
    if not isinstance(value, int | float):
        raise BadInput(f"objective={name}: summary.json has no number of that name (undefined figures are null)")
    return float(value)


def _summary(experiment: Experiment, records: Records) -> dict[str, Any]:
    alone = experiment.backend.alone(experiment.config.engine, records.requests)
    figures = summarise(records, experiment.metrics, alone)
    return {**figures, "oracle": experiment.oracle, "predictor": _predictor(experiment)}


def _predictor(experiment: Experiment) -> dict[str, Any] | None:
    if experiment.predictor is None:
        return None
    return asdict(experiment.predictor.counts) | ({"model": experiment.model.name} if experiment.model else {})


def _predictor_time(experiment: Experiment) -> dict[str, float]:
    """Wall clock of the predictor itself: in all, and of one prediction."""
    predictor = experiment.predictor
    if predictor is None or not predictor.counts.predictions:
        return {}
    return {"predictor_s": predictor.seconds, "predictor_ms": 1e3 * predictor.seconds / predictor.counts.predictions}


def _info(config: Config, text: str, job: Job) -> RunInfo:
    swept = dict(split_override(override) for override in job.overrides)
    told = [override for override in job.overrides if not override.startswith(UNNAMED)]
    name = " ".join([job.choices["policy"], *told])
    weights = config.metrics.prompt_weight, config.metrics.output_weight
    return RunInfo(name[:250], flat_parameters(text, job.choices), text, swept, service_weights=weights)


def split_override(override: str) -> tuple[str, str]:
    key, _, value = override.partition("=")
    return key.lstrip("+~"), value


def flat_parameters(text: str, choices: Mapping[str, str]) -> dict[str, object]:
    """Flat, with the names of the options chosen; what is null was not given and is left out."""
    config = yaml.safe_load(text)
    leaves = {key: value for key, value in _leaves(config) if value is not None and not key.startswith(UNTOLD)}
    return {**choices, **leaves}


def _leaves(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in node.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _workload(experiment: Experiment, job: Job) -> Workload:
    config, traffic = experiment.config.workload, experiment.workload.traffic
    source = str(job.base / (config.path or "")) if isinstance(config, TraceConfig) else config.kind
    return Workload(job.choices["workload"], traffic_digest(traffic), source, len(traffic), len(traffic.tenants))


def _tags(experiment: Experiment, job: Job) -> dict[str, str]:
    kind = experiment.backend.device.capabilities.kind
    tags = provenance(experiment.policy, experiment.predictor, experiment.workload.traffic, kind, job.base)
    model = experiment.model
    return tags if model is None else {**tags, "predictor_model": model.name, "predictor_model_hash": model.digest}
