"""One training, from its configuration to a model that runs can use."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import pandas as pd
from omegaconf import DictConfig, OmegaConf

from bench.config import check_keys
from bench.errors import BadInput, named
from bench.learning.config import TrainConfig
from bench.learning.data import Data, read_data
from bench.learning.figures import LEARNED, Figures, cost_of, figures_of
from bench.learning.fitting import fitted
from bench.learning.plots import draw_plots
from bench.learning.rows import digest_of
from bench.learning.settings import embedder_called, learned_config
from bench.learning.shown import figures_table
from bench.output import CONFIG
from bench.run import Job, flat_parameters, split_override
from bench.tracking.api import RunInfo
from bench.tracking.store import store_uri
from bench.tracking.training import MODEL_FOLDER, RowSet, TrainingTracker
from predictors.learned import LearnedConfig, LearnedPredictor
from predictors.store import save

TARGET = "bench.learning.learned.Learned"


@dataclass(frozen=True)
class Trained:
    folder: Path
    figures: Figures
    cost: dict[str, float]
    data: Data
    address: str | None
    """``models:/NAME/VERSION``, if it was registered."""
    alias: str | None
    store: str | None

    def text(self) -> str:
        return figures_table(self)


def train(settings: DictConfig, job: Job) -> Trained:
    """Raises BadInput, naming the key, before anything is written."""
    config = _typed(settings)
    learning = _learning(config)
    text = OmegaConf.to_yaml(settings, resolve=True)
    if config.tracking.kind == "none":
        return _trained(config, learning, text, job, None)
    if config.tracking.kind != "mlflow":
        raise BadInput(f"tracking.kind={config.tracking.kind!r} is unknown: use mlflow or none")
    tracker = TrainingTracker(config.tracking.uri, config.tracking.experiment, job.base)
    with tracker.track(_info(text, job)):
        return _trained(config, learning, text, job, tracker)


def _trained(
    config: TrainConfig, learning: LearnedConfig, text: str, job: Job, tracker: TrainingTracker | None
) -> Trained:
    data = read_data(config, job.base)
    if tracker is not None:
        tracker.learns_from([_row_set(data, data.train, "training"), _row_set(data, data.test, "test")])
    began = perf_counter()
    embedder = embedder_called(config.predictor.get("embedder"))
    with named("data"):
        predictor = fitted(data.train, learning, embedder)
    cost = {"fit_s": perf_counter() - began, **cost_of(predictor, data.test)}
    figures = figures_of(predictor, data.train, data.test, learning.quantile)
    _write(job.folder, predictor, data, figures, cost, text)
    address, alias = None, None
    if tracker is not None:
        alias = config.register.alias
        address = tracker.trained(_metrics(figures, cost), job.folder, config.register.name, alias)
    store = None if address is None else store_uri(config.tracking.uri, job.base)
    return Trained(job.folder, figures, cost, data, address, alias, store)


def _typed(settings: DictConfig) -> TrainConfig:
    check_keys(settings)
    config = OmegaConf.to_object(settings)
    assert isinstance(config, TrainConfig)
    return config


def _learning(config: TrainConfig) -> LearnedConfig:
    """What the group `predictor` says of learning."""
    node = config.predictor
    if node.get("_target_") != TARGET:
        raise BadInput(
            f"predictor: {node.get('_target_')} learns nothing: choose predictor=learned, learned_rank or learned_class"
        )
    if node.get("model") != "corpus":
        raise BadInput(f"predictor.model={node.get('model')}: a training makes a model; leave it out")
    return learned_config(node)


def _write(
    folder: Path, predictor: LearnedPredictor, data: Data, figures: Figures, cost: dict[str, float], text: str
) -> None:
    save(predictor, folder / MODEL_FOLDER)
    draw_plots(predictor, data.test, folder / "plots")
    (folder / CONFIG).write_text(text, encoding="utf-8")
    (folder / "figures.json").write_text(json.dumps({**figures, "cost": cost}, indent=2) + "\n", encoding="utf-8")


def _metrics(figures: Figures, cost: dict[str, float]) -> dict[str, float]:
    """The predictor's own as ``score/…``, those of the others under their names."""
    named_figures = {("score" if name == LEARNED else name): values for name, values in figures.items()}
    named_figures["cost"] = cost
    return {
        f"{name.replace('+', 'and')}/{key}": value
        for name, values in named_figures.items()
        for key, value in values.items()
    }


def _row_set(data: Data, rows: pd.DataFrame, context: str) -> RowSet:
    return RowSet(data.name, digest_of(rows), data.source, len(rows), context)


def _info(text: str, job: Job) -> RunInfo:
    swept = dict(split_override(override) for override in job.overrides)
    told = [override for override in job.overrides if not override.startswith("predictor=")]
    name = " ".join([job.choices["predictor"], *told])
    return RunInfo(name[:250], flat_parameters(text, job.choices), text, swept)
