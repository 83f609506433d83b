"""Where a trained predictor lies, and which one it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.errors import BadInput
from bench.learning.on_the_spot import corpus_model
from bench.learning.registry import ADDRESS, fetch
from bench.learning.settings import Settings, check_agreement, embedder_called
from predictors.learned import LearnedPredictor
from predictors.store import BadModel, description, load

CORPUS = "corpus"


@dataclass(frozen=True, slots=True)
class Origin:
    """Which model it is: an alias is another one tomorrow."""

    name: str
    """``models:/NAME/VERSION``, a folder, or corpus."""
    digest: str


def load_model(model: str, store: str, settings: Settings) -> tuple[LearnedPredictor, Origin]:
    """As `bench.learning.learned.Learned` describes. Relative paths start where the command did."""
    folder, name = _find(model, store, settings)
    try:
        described = description(folder)
        predictor = load(folder, embedder_called(described["embedder"]))
    except BadModel as error:
        raise BadInput(f"predictor.model: {model}: {error}") from error
    if model != CORPUS:
        check_agreement(settings, predictor.config, name)
    return predictor, Origin(name, described["sha256"][:16])


def _find(model: str, store: str, settings: Settings) -> tuple[Path, str]:
    if model == CORPUS:
        return corpus_model(settings), CORPUS
    if model.startswith(ADDRESS):
        return fetch(model, store, Path.cwd())
    return Path(model), model
