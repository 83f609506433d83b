"""Fitting the learned predictor.

Nothing is judged by what it was fitted to. The prompts are dealt into five folds. The trees correct what a ridge
that did not see a prompt says of it; and what is calibrated are the errors of ridge and trees on prompts that neither
saw, fold by fold until there are enough. The model that answers has seen all rows, so that its errors are, if
anything, a little smaller (cross-conformal prediction, Vovk 2015; Barber et al. 2021).
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from sklearn.model_selection import GroupKFold

from predictors.classes import ClassHead
from predictors.conformal import Residuals
from predictors.encoder import Floats, TextEncoder
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
from predictors.linear import Codes, SharedRidge, Tenants, out_of_fold
from predictors.pairs import COLUMNS, BadRows
from predictors.ranker import RankHead
from predictors.split import groups_of

FOLDS = 5
FEWEST_ROWS = 100


def fit(rows: pd.DataFrame, config: LearnedConfig | None = None, embedder: Embedder | None = None) -> LearnedPredictor:
    """Learn from rows (predictors.pairs).

    Raises BadRows where a column is missing, or the rows are too few to learn from or to calibrate on.
    """
    config = config or LearnedConfig()
    embedder = checked_embedder(config, embedder)
    folds = _folds(_checked(rows), config.seed)
    known = _known(rows).only(config.features)
    logs, capped = np.log(rows.length.to_numpy(dtype=np.float64)), rows.capped.to_numpy(dtype=bool)

    tenants = Tenants.fit(known.tenants, logs)
    codes, count = tenants.codes(known.tenants), len(tenants.names)
    center, scale = tenants.center[codes], tenants.scale[codes]
    z = (logs - center) / scale
    encoder = TextEncoder.fit(*spoken(list(dict.fromkeys(known.texts)), config, embedder), config.topics, config.seed)
    encoded = encode(encoder, known.texts, config, embedder)

    own, anybody = out_of_fold(encoded.linear, codes, z, folds, count)
    material = Material(dense_features(known, encoded, anybody, codes), own, z, capped, center, scale)
    ridge = SharedRidge.fit(encoded.linear, codes, z, count)
    head, spread = _correct(material, config)
    errors = _held_out_errors(material, folds, config)
    told = ~np.isnan(errors) & (encoded.known if encoded.known.any() else True)

    residuals = Residuals.fit(errors[told], capped[told], codes[told], count, config.quantile)
    marginal = Residuals.fit(z, capped, codes, count, config.quantile)
    model = LengthModel(encoder, tenants, ridge, head, spread, residuals, marginal)
    return LearnedPredictor(model, config, embedder)


def _checked(rows: pd.DataFrame) -> pd.DataFrame:
    if missing := [name for name in COLUMNS if name not in rows.columns]:
        raise BadRows(f"not training rows: no column {', '.join(missing)}; found {', '.join(rows.columns)}")
    if len(rows) < FEWEST_ROWS:
        raise BadRows(f"{len(rows)} rows are too few to learn from: at least {FEWEST_ROWS}")
    return rows


def _folds(rows: pd.DataFrame, seed: int) -> Codes:
    """(n,) the fold of each row: prompts of one group in the same."""
    groups = groups_of(rows)
    if (different := len(np.unique(groups))) < FOLDS:
        raise BadRows(f"{different} different prompts are too few to learn from: at least {FOLDS}")
    folds = np.empty(len(rows), dtype=np.int64)
    dealer = GroupKFold(FOLDS, shuffle=True, random_state=seed)
    for fold, (_, members) in enumerate(dealer.split(groups, groups=groups)):
        folds[members] = fold
    return folds


def _known(rows: pd.DataFrame) -> Known:
    prompt_tokens, arrivals = (rows[name].to_numpy(dtype=np.float64) for name in ("prompt_tokens", "arrival"))
    return Known(list(rows.text), prompt_tokens, rows.tenant.to_numpy(dtype=object), arrivals)


def _correct(material: Material, config: LearnedConfig) -> tuple[Head, Spread]:
    spread = Spread.fit(material, config.rounds, config.seed)
    if config.objective == "rank":
        return RankHead.fit(material, config.seed), spread
    if config.objective == "class":
        return ClassHead.fit(material, config.bins, config.rounds, config.seed), spread
    return LengthHead.fit(material, config.rounds, config.seed), spread


def _held_out_errors(material: Material, folds: Codes, config: LearnedConfig) -> Floats:
    """(n,) how far off each is, as a share of how far off it was expected to be; NaN in folds that were not needed."""
    errors = np.full(len(folds), np.nan)
    for fold in range(min(FOLDS, math.ceil(config.calibration * FOLDS / len(folds)))):
        out = folds == fold
        head, spread = _correct(material.take(~out), config)
        held = material.take(out)
        located = head.locate(held.dense, held.ridge, held.center, held.scale)
        errors[out] = (held.z - located.z) / spread.predict(held.dense)
    return errors
