"""How good predictions are: order, size, bins, bounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import kendalltau

from predictors.api import Prediction, Predictor
from predictors.encoder import Floats
from predictors.pairs import inputs_of
from predictors.split import groups_of

BINS = (4, 5)


def score(predictor: Predictor, rows: pd.DataFrame, quantile: float = 0.9) -> dict[str, float]:
    """Figures of the predictor on these rows; `quantile` is what its `upper` claims to be.

    tau: Kendall's tau_b of what the predictor orders by (`score`, else `expected`), mean over tenants; 0 where all
        answers are equal.
    mae: mean absolute error of `expected` in tokens; mean_length beside it.
    pinball: mean pinball loss of `upper` in tokens; pinball_median: that of `expected` at 0.5, half the mae.
    coverage: share of known lengths <= upper; coverage_error: its standard error, prompts being drawn, not rows;
        capped: rows left out of it, and of mae and pinball.
    coverage_at_least: share of all rows, a cut answer being covered where `upper` reaches its cut.
    bins_k, bins_k_near: share of rows in the right one of k bins of equally many true lengths, or within one of it.
    fallbacks: share of rows of which nothing was known.
    """
    answers = predictor.predict(inputs_of(rows))
    lengths = rows.length.to_numpy(dtype=np.float64)
    capped = rows.capped.to_numpy(dtype=bool)
    expected = np.array([a.expected for a in answers])
    upper = np.array([a.upper for a in answers])
    known = ~capped
    figures = {
        "rows": float(len(rows)),
        "capped": float(capped.sum()),
        "tau": tenant_tau(_order(answers), lengths, rows.tenant.to_numpy(dtype=object)),
        "mean_length": float(lengths[known].mean()),
        "mae": float(np.abs(expected - lengths)[known].mean()),
        "pinball": pinball(upper[known], lengths[known], quantile),
        "pinball_median": pinball(expected[known], lengths[known], 0.5),
        "coverage": float((lengths <= upper)[known].mean()),
        "coverage_error": clustered_error((lengths <= upper)[known], groups_of(rows)[known]),
        "coverage_at_least": float((lengths <= np.ceil(upper)).mean()),
        "fallbacks": float(np.mean([a.source.startswith("fallback") for a in answers])),
    }
    for bins in BINS:
        distance = bin_distance(expected, lengths, bins)
        figures[f"bins_{bins}"] = float(np.mean(distance == 0))
        figures[f"bins_{bins}_near"] = float(np.mean(distance <= 1))
    return figures


def tau_b(order: Floats, lengths: Floats) -> float:
    """0 where either side is constant: no order is predicted, or there is none."""
    tau = float(kendalltau(order, lengths).statistic)
    return tau if tau == tau else 0.0


def tenant_tau(order: Floats, lengths: Floats, tenants: npt.NDArray[np.object_]) -> float:
    parts = [tenants == tenant for tenant in pd.unique(tenants)]
    return float(np.mean([tau_b(order[part], lengths[part]) for part in parts]))


def clustered_error(hits: npt.NDArray[np.bool_], groups: npt.NDArray[np.int64]) -> float:
    """Standard error of the share of hits, rows of one group being alike."""
    sums = np.bincount(groups, weights=hits - hits.mean())
    return float(np.sqrt(np.sum(sums**2)) / len(hits))


def pinball(predicted: Floats, lengths: Floats, quantile: float) -> float:
    over = predicted - lengths
    return float(np.mean(np.maximum((1 - quantile) * over, -quantile * over)))


def bin_distance(predicted: Floats, lengths: Floats, bins: int) -> npt.NDArray[np.int64]:
    """How many bins apart prediction and truth are; upper edges are quantiles of the true lengths, included."""
    edges = np.quantile(lengths, np.arange(1, bins) / bins)
    distance: npt.NDArray[np.int64] = np.abs(np.searchsorted(edges, predicted) - np.searchsorted(edges, lengths))
    return distance


def _order(answers: Sequence[Prediction]) -> Floats:
    return np.array([a.expected if a.score is None else a.score for a in answers])
