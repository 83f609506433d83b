"""The learned length predictor: what is known of a request at arrival in, a distribution of its length out.

A ridge regression on words and hand-made features and a kernel regression on what prompts are about come first, trees
correct them, all on the log of the length as a deviation from what its tenant usually gets. How far off the truth then
was on prompts held out from all, as a share of how far off it was expected to be, is the rest of the distribution. Its
median is `expected`; the point that 90% stay under is `upper` (split conformal prediction with normalised residuals,
Lei et al. 2018); and what of it lies beyond the tokens made so far is the answer when a request outran its prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from predictors.api import Prediction, PredictionInput, Predictor
from predictors.conformal import Residuals
from predictors.encoder import Encoded, Floats, TextEncoder
from predictors.first import FirstStage, Told
from predictors.heads import Head, Located, Spread
from predictors.linear import Codes, Tenants
from predictors.split import FEATURES, check_features

NAME = "learned"
DAY = 24 * 3600 * 10**12
FARTHEST_Z = 6.0
"""Standard deviations: an extrapolation stays finite."""


class Embedder(Protocol):
    """Texts as vectors; predictors.embed has one."""

    name: str
    width: int

    def embed(self, texts: Sequence[str | None]) -> Floats:
        """(n, width), rows of length 1, or 0 where there is no text."""


@dataclass(frozen=True)
class LearnedConfig:
    objective: str = "length"
    """length, rank (fills `score`), or class (fills `probabilities`, over `bins`)"""
    features: tuple[str, ...] = FEATURES
    """some of FEATURES and "embedding" """
    quantile: float = 0.9
    """of the true length, that `upper` is calibrated to"""
    calibration: int = 2_500
    """held-out rows that this is done on, where there are as many"""
    bins: int = 5
    topics: int = 200
    """directions of the words in which prompts are compared; the trees see the first few"""
    rounds: int = 300
    """of boosting, at most"""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.objective not in ("length", "rank", "class"):
            raise ValueError(f"learned.objective: {self.objective!r} is none of length, rank, class")
        check_features(self.features, (*FEATURES, "embedding"))
        if not 0 < self.quantile < 1:
            raise ValueError(f"learned.quantile: {self.quantile} is not > 0 and < 1")
        counts = (("calibration", self.calibration, 1), ("bins", self.bins, 3), ("topics", self.topics, 0))
        for name, count, least in (*counts, ("rounds", self.rounds, 4)):
            if count < least:
                raise ValueError(f"learned.{name}: {count} is not >= {least}")


@dataclass(frozen=True)
class Known:
    """What is known of n requests, as columns; a feature that the config leaves out is the same for all."""

    texts: Sequence[str | None]
    prompt_tokens: Floats
    tenants: npt.NDArray[np.object_]
    arrivals: Floats  # picoseconds

    def take(self, places: Codes) -> Known:
        texts = [self.texts[i] for i in places]
        return Known(texts, self.prompt_tokens[places], self.tenants[places], self.arrivals[places])

    def only(self, features: Sequence[str]) -> Known:
        n = len(self.texts)
        return Known(
            self.texts if {"text", "embedding"} & set(features) else [None] * n,
            self.prompt_tokens if "prompt_tokens" in features else np.zeros(n),
            self.tenants if "tenant" in features else np.full(n, "", dtype=object),
            self.arrivals if "time" in features else np.zeros(n),
        )


@dataclass(frozen=True)
class LengthModel:
    """All that is fitted."""

    encoder: TextEncoder
    tenants: Tenants
    first: FirstStage
    head: Head
    spread: Spread
    residuals: Residuals  # of requests of which the text says something
    marginal: Residuals  # of all, in standard deviations of their tenant: the answer where it says nothing

    @property
    def reads(self) -> bool:
        """False if no text was there to learn from."""
        return bool(len(self.encoder.kept) or len(self.encoder.embedding_axes))

    def locate(self, known: Known, encoded: Encoded, codes: Codes) -> tuple[Located, Floats]:
        """Where each length lies, and how far off that is expected to be; both in z."""
        told = self.first.predict(encoded, codes)
        dense = dense_features(known, encoded, told, codes)
        located = self.head.locate(dense, told.z, self.tenants.center[codes], self.tenants.scale[codes])
        return located, self.spread.predict(dense)


class LearnedPredictor(Predictor):
    """Made by predictors.training.fit, or loaded by predictors.store.load."""

    def __init__(self, model: LengthModel, config: LearnedConfig, embedder: Embedder | None = None) -> None:
        self.model = model
        self.config = config
        self.embedder = checked_embedder(config, embedder)

    def predict(self, inputs: Sequence[PredictionInput]) -> list[Prediction]:
        if not inputs:
            return []
        known = Known(
            [i.text for i in inputs],
            np.array([i.prompt_tokens for i in inputs], dtype=np.float64),
            np.array([i.tenant for i in inputs], dtype=object),
            np.array([i.arrival for i in inputs], dtype=np.float64),
        ).only(self.config.features)
        encoded = encode(self.model.encoder, known.texts, self.config, self.embedder)
        codes = self.model.tenants.codes(known.tenants)
        located, spread = self.model.locate(known, encoded, codes)
        answered = encoded.known | (not self.model.reads)
        made = np.array([i.output_tokens for i in inputs], dtype=np.float64)
        expected, upper = self._lengths(np.clip(located.z, -FARTHEST_Z, FARTHEST_Z), spread, answered, codes, made)
        orders = None if located.score is None else np.where(answered, located.score, np.log(expected))
        predictions = []
        for i, request in enumerate(inputs):
            score = None if orders is None else float(orders[i])
            chances = _chances(located, i, request.output_tokens) if answered[i] else None
            source = NAME if answered[i] else f"fallback:{NAME}"
            predictions.append(Prediction(*_within(request, expected[i], upper[i]), source, score, chances))
        return predictions

    def _lengths(
        self, z: Floats, spread: Floats, answered: npt.NDArray[np.bool_], codes: Codes, made: Floats
    ) -> tuple[Floats, Floats]:
        """Median and upper quantile, (n,) tokens, of the lengths beyond what was made."""
        z, spread = np.where(answered, z, 0.0), np.where(answered, spread, 1.0)
        center, scale = self.model.tenants.center[codes], self.model.tenants.scale[codes]
        with np.errstate(divide="ignore"):  # nothing made: beyond -inf
            beyond = ((np.log(made) - center) / scale - z) / spread
        middle, upper = np.empty(len(z)), np.empty(len(z))
        for part, residuals in ((answered, self.model.residuals), (~answered, self.model.marginal)):
            if part.any():
                middle[part], upper[part] = residuals.middle_and_upper(codes[part], beyond[part])
        longest = np.log(np.finfo(np.float64).max) / 2
        return tuple(np.exp(np.minimum(center + scale * (z + spread * r), longest)) for r in (middle, upper))


def _within(request: PredictionInput, expected: float, upper: float) -> tuple[float, float]:
    """Beyond what was made, and no more than may be made."""
    expected = min(max(expected, request.output_tokens + 1), request.max_tokens)
    return float(expected), float(min(max(upper, expected), request.max_tokens))


def _chances(located: Located, place: int, made: int) -> tuple[float, ...] | None:
    """Of each bin, none of those that end before the next token."""
    if located.probabilities is None or located.edges is None:
        return None
    chances = located.probabilities[place] * np.append(located.edges > made, True)
    return tuple((chances / chances.sum()).tolist())


def encode(
    encoder: TextEncoder, texts: Sequence[str | None], config: LearnedConfig, embedder: Embedder | None
) -> Encoded:
    """Each different text once."""
    place: dict[str | None, int] = {}
    places = np.array([place.setdefault(text, len(place)) for text in texts], dtype=np.int64)
    different = list(place)
    encoded = encoder.encode(*spoken(different, config, embedder))
    return encoded if len(different) == len(texts) else encoded.take(places)


def spoken(
    texts: Sequence[str | None], config: LearnedConfig, embedder: Embedder | None
) -> tuple[Sequence[str | None], Floats]:
    """What an encoder takes: texts and embeddings, as far as the config wants them."""
    embeddings = np.zeros((len(texts), 0)) if embedder is None else embedder.embed(texts)
    return texts if "text" in config.features else [None] * len(texts), embeddings


def dense_features(known: Known, encoded: Encoded, told: Told, codes: Codes) -> Floats:
    """(n, features) for the trees; the tenant's code last, NaN where it was never seen."""
    angle = 2 * np.pi * (known.arrivals % DAY) / DAY
    tenant = np.where(codes < 0, np.nan, codes)  # a number that trees may cut anywhere: tenants are few
    columns = [np.log1p(known.prompt_tokens), np.sin(angle), np.cos(angle), tenant]
    return np.column_stack([encoded.dense, told.anybody, told.alike, *columns])


def checked_embedder(config: LearnedConfig, embedder: Embedder | None) -> Embedder | None:
    """The embedder, if the config wants one; raises ValueError if it does and none is given."""
    if "embedding" not in config.features:
        return None
    if embedder is None:
        raise ValueError('learned.features has "embedding", but no embedder is given: see predictors.embed')
    return embedder
