"""Fitting with as many threads as pay."""

from __future__ import annotations

import pandas as pd
from threadpoolctl import threadpool_limits

from predictors.learned import Embedder, LearnedConfig, LearnedPredictor
from predictors.training import fit

MANY_ROWS = 20_000
"""Below, the threads of a tree wait for each other longer than they work; beside another program, ten times as long."""


def fitted(rows: pd.DataFrame, config: LearnedConfig, embedder: Embedder | None) -> LearnedPredictor:
    with threadpool_limits(None if len(rows) >= MANY_ROWS else 1):
        return fit(rows, config, embedder)
