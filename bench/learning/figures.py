"""How good a predictor is beside those that know less, and what it costs."""

from __future__ import annotations

from statistics import median
from time import perf_counter

import pandas as pd

from predictors.api import PredictionInput, Predictor
from predictors.baselines import BASELINES, Baseline
from predictors.pairs import inputs_of
from predictors.score import score

LEARNED = "learned"
REPEATS = 20

Figures = dict[str, dict[str, float]]
"""By predictor, by name of the figure (predictors.score)."""


def figures_of(predictor: Predictor, train: pd.DataFrame, test: pd.DataFrame, quantile: float) -> Figures:
    figures = {LEARNED: score(predictor, test, quantile)}
    for name, model in BASELINES.items():
        if name == "TF-IDF + ridge" and not train.text.str.strip().str.len().gt(0).any():
            continue  # there is nothing that it could read
        known = train.assign(text=train.text.fillna(""))
        figures[name] = score(Baseline(name, model(known), known, quantile), test, quantile)
    return figures


def cost_of(predictor: Predictor, rows: pd.DataFrame) -> dict[str, float]:
    """Milliseconds a request, alone and in batches of 32: medians."""
    inputs = inputs_of(rows)
    return {
        "predict_ms_alone": _milliseconds(predictor, inputs, 1),
        "predict_ms_in_32": _milliseconds(predictor, inputs, 32),
    }


def _milliseconds(predictor: Predictor, inputs: list[PredictionInput], batch: int) -> float:
    times = []
    for start in range(0, min(len(inputs), REPEATS * batch), batch):
        asked = inputs[start : start + batch]
        began = perf_counter()
        predictor.predict(asked)
        times.append(1e3 * (perf_counter() - began) / len(asked))
    return median(times)
