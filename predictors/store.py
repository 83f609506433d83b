"""A learned predictor as a folder: `model.skops`, and `model.json` that says what it is.

skops writes estimators as types and arrays and builds only types that it is told to trust: loading runs no code from
the file. Our own parts are written as plain fields under the name of their class, one of PARTS.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import sklearn
from skops.io import dump, get_untrusted_types
from skops.io import load as build
from skops.io.exceptions import UntrustedTypesFoundException

from predictors.classes import ClassHead
from predictors.conformal import Residuals
from predictors.encoder import TextEncoder
from predictors.features import FEATURES
from predictors.first import FirstStage
from predictors.heads import LengthHead, Spread
from predictors.kernel import KernelRidge
from predictors.learned import Embedder, LearnedConfig, LearnedPredictor, LengthModel
from predictors.linear import SharedRidge, Tenants
from predictors.ranker import RankHead
from predictors.survival import Survival
from predictors.trees import Trees

KIND = "batchyard length predictor"
VERSION = 2
"""Of what is stored; raised when an older file would be read wrongly."""
MODEL, ABOUT = "model.skops", "model.json"

PARTS: dict[str, type[Any]] = {
    part.__name__: part
    for part in (
        *(LengthModel, TextEncoder, Tenants, FirstStage, SharedRidge, KernelRidge, LengthHead, RankHead, ClassHead),
        *(Trees, Spread, Residuals, Survival),
    )
}


class BadModel(ValueError):
    """A folder that holds no predictor that can be loaded here; the message names the folder and the remedy."""


def save(predictor: LearnedPredictor, folder: str | Path) -> Path:
    """Write the predictor into `folder`, which is made if need be; returns it."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    dump(_fields(predictor.model), folder / MODEL)
    config = predictor.config
    about = {
        "kind": KIND,
        "version": VERSION,
        "scikit_learn": sklearn.__version__,
        "sha256": _digest(folder / MODEL),
        "config": dataclasses.asdict(config),
        "embedder": predictor.embedder.name if predictor.embedder else None,
        "tenants": predictor.model.tenants.names,
        "features": list(FEATURES),
    }
    (folder / ABOUT).write_text(json.dumps(about, indent=1) + "\n")
    return folder


def load(folder: str | Path, embedder: Embedder | None = None) -> LearnedPredictor:
    """The predictor that `save` wrote. Raises BadModel, in one line."""
    folder = Path(folder)
    about = description(folder)
    config = LearnedConfig(**{**about["config"], "features": tuple(about["config"]["features"])})
    wanted = about["embedder"]
    if wanted and (embedder is None or embedder.name != wanted):
        given = "none" if embedder is None else repr(embedder.name)
        raise BadModel(f"{folder}: made with the embedder {wanted!r}, given is {given}")
    path = folder / MODEL
    if _digest(path) != about["sha256"]:
        raise BadModel(f"{path}: not the file that {ABOUT} describes (truncated, or of another model): copy it again")
    try:
        if foreign := get_untrusted_types(file=path):
            raise BadModel(f"{path}: holds {', '.join(foreign)}, which a length predictor does not; it was not loaded")
        model = _part(build(path, trusted=[]))
        if not isinstance(model, LengthModel):
            raise TypeError(f"it holds a {type(model).__name__}")
    except (zipfile.BadZipFile, UntrustedTypesFoundException, KeyError, TypeError) as error:
        raise BadModel(f"{path}: not a {KIND}: {error}") from None
    return LearnedPredictor(model, config, embedder)


def description(folder: Path) -> dict[str, Any]:
    """What model.json says, if this program can read such a model; raises BadModel."""
    path = folder / ABOUT
    if not path.is_file() or not (folder / MODEL).is_file():
        raise BadModel(f"{folder}: no {KIND}: expected {MODEL} and {ABOUT} (batchyard train makes them)")
    try:
        about = json.loads(path.read_text())
        kind, version, made_with = about["kind"], about["version"], about["scikit_learn"]
    except (ValueError, KeyError, TypeError):
        raise BadModel(f"{path}: not the description of a {KIND}: train it again, or copy it again") from None
    if kind != KIND:
        raise BadModel(f"{folder}: holds a {kind!r}, not a {KIND!r}")
    if version != VERSION:
        raise BadModel(f"{folder}: format version {version}, this program reads {VERSION}: train it again")
    if _minor(made_with) != _minor(sklearn.__version__):
        raise BadModel(f"{folder}: made with scikit-learn {made_with}, here is {sklearn.__version__}: train it again")
    if about.get("features") != list(FEATURES):
        raise BadModel(f"{folder}: made with other features than this program's: train it again")
    return dict(about)


def _fields(value: Any) -> Any:
    """Our parts as dictionaries of their fields; all else as it is."""
    if type(value).__name__ in PARTS and dataclasses.is_dataclass(value):
        fields = {f.name: _fields(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"part": type(value).__name__, "fields": fields}
    return [_fields(v) for v in value] if isinstance(value, list) else value


def _part(value: Any) -> Any:
    if isinstance(value, dict):
        return PARTS[value["part"]](**{name: _part(field) for name, field in value["fields"].items()})
    return [_part(v) for v in value] if isinstance(value, list) else value


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
