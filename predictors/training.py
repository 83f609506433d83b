"""Fitting the learned predictor.

Nothing is judged by what it was fitted to. The prompts are dealt into five folds. The trees correct what a first
stage that did not see a prompt says of it; and what is calibrated are the errors of both on a fold that neither saw,
fold by fold until there are enough. The model that answers has seen all rows, so that its errors are, if anything, a
little smaller (cross-conformal prediction, Vovk 2015; Barber et al. 2021).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.model_selection import GroupKFold

from predictors.classes import ClassHead
from predictors.conformal import Residuals
from predictors.encoder import Encoded, Floats, TextEncoder
from predictors.first import FirstStage
from predictors.heads import Head, LengthHead, Material, Spread
from predictors.learned import (
    Embedder,
    Known,
    LearnedConfig,
    LearnedPredictor,
    LengthModel,
    checked_embedder,
    dense_features,
    encode,
    spoken,
)
from predictors.linear import Codes, Tenants
from predictors.pairs import COLUMNS, BadRows
from predictors.ranker import RankHead
from predictors.split import groups_of

FOLDS = 5
FEWEST_ROWS = 100


@dataclass(frozen=True)
class Batch:
    """n training rows, as the stages see them."""

    known: Known
    encoded: Encoded
    codes: Codes
    z: Floats  # where `capped`, at least
    capped: npt.NDArray[np.bool_]
    folds: Codes

    def take(self, rows: npt.NDArray[np.bool_]) -> Batch:
        at = np.flatnonzero(rows)
        columns = (self.codes[at], self.z[at], self.capped[at], self.folds[at])
        return Batch(self.known.take(at), self.encoded.take(at), *columns)


def fit(rows: pd.DataFrame, config: LearnedConfig | None = None, embedder: Embedder | None = None) -> LearnedPredictor:
    """Learn from rows (predictors.pairs).

    Raises BadRows where a column is missing, or the rows are too few to learn from or to calibrate on.
    """
    config = config or LearnedConfig()
    embedder = checked_embedder(config, embedder)
    groups = groups_of(_checked(rows))
    known = _known(rows).only(config.features)
    logs, capped = np.log(rows.length.to_numpy(dtype=np.float64)), rows.capped.to_numpy(dtype=bool)

    tenants = Tenants.fit(known.tenants, logs)
    codes = tenants.codes(known.tenants)
    z = (logs - tenants.center[codes]) / tenants.scale[codes]
    encoder = _encoder(known.texts, groups, config, embedder)
    encoded = encode(encoder, known.texts, config, embedder)
    batch = Batch(known, encoded, codes, z, capped, _folds(groups, config.seed))

    first, head, spread = _stages(batch, tenants, config)
    marginal = Residuals.fit(z, capped, codes, len(tenants.names), config.quantile)
    model = LengthModel(encoder, tenants, first, head, spread, marginal, marginal)
    errors = _held_out_errors(batch, model, config)
    told = ~np.isnan(errors) & (encoded.known if model.reads else True)
    residuals = Residuals.fit(errors[told], capped[told], codes[told], len(tenants.names), config.quantile)
    return LearnedPredictor(replace(model, residuals=residuals), config, embedder)


def _checked(rows: pd.DataFrame) -> pd.DataFrame:
    if missing := [name for name in COLUMNS if name not in rows.columns]:
        raise BadRows(f"not training rows: no column {', '.join(missing)}; found {', '.join(rows.columns)}")
    if len(rows) < FEWEST_ROWS:
        raise BadRows(f"{len(rows)} rows are too few to learn from: at least {FEWEST_ROWS}")
    return rows


def _encoder(
    texts: Sequence[str | None], groups: Codes, config: LearnedConfig, embedder: Embedder | None
) -> TextEncoder:
    first = {text: i for i, text in reversed(list(enumerate(texts)))}
    different, embeddings = spoken(list(first), config, embedder)
    return TextEncoder.fit(different, groups[list(first.values())], embeddings, config.topics, config.seed)


def _folds(groups: Codes, seed: int) -> Codes:
    """(n,) the fold of each row: prompts of one group in the same."""
    if (different := len(np.unique(groups))) < FOLDS:
        raise BadRows(f"{different} different prompts are too few to learn from: at least {FOLDS}")
    folds = np.empty(len(groups), dtype=np.int64)
    dealer = GroupKFold(FOLDS, shuffle=True, random_state=seed)
    for fold, (_, members) in enumerate(dealer.split(groups, groups=groups)):
        folds[members] = fold
    return folds


def _known(rows: pd.DataFrame) -> Known:
    prompt_tokens, arrivals = (rows[name].to_numpy(dtype=np.float64) for name in ("prompt_tokens", "arrival"))
    return Known(list(rows.text), prompt_tokens, rows.tenant.to_numpy(dtype=object), arrivals)


def _stages(batch: Batch, tenants: Tenants, config: LearnedConfig) -> tuple[FirstStage, Head, Spread]:
    """The first stage, and what corrects it: fitted to what it says of prompts that it did not see."""
    rows = (batch.encoded, batch.codes, batch.z, batch.capped, batch.folds)
    first, told = FirstStage.fit(*rows, len(tenants.names), config.seed)
    dense = dense_features(batch.known, batch.encoded, told, batch.codes)
    center, scale = tenants.center[batch.codes], tenants.scale[batch.codes]
    material = Material(dense, told.z, batch.z, batch.capped, center, scale)
    return first, _head(material, config), Spread.fit(material, config.rounds, config.seed)


def _head(material: Material, config: LearnedConfig) -> Head:
    if config.objective == "rank":
        return RankHead.fit(material, config.seed)
    if config.objective == "class":
        return ClassHead.fit(material, config.bins, config.rounds, config.seed)
    return LengthHead.fit(material, config.rounds, config.seed)


def _held_out_errors(batch: Batch, model: LengthModel, config: LearnedConfig) -> Floats:
    """(n,) how far off each is, as a share of how far off it was expected to be; NaN in folds that were not needed."""
    errors = np.full(len(batch.z), np.nan)
    for fold in range(min(FOLDS, math.ceil(config.calibration * FOLDS / len(batch.z)))):
        out = batch.folds == fold
        first, head, spread = _stages(batch.take(~out), model.tenants, config)
        held = batch.take(out)
        blind = replace(model, first=first, head=head, spread=spread)
        located, spreads = blind.locate(held.known, held.encoded, held.codes)
        errors[out] = (held.z - located.z) / spreads
    return errors
