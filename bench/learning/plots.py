"""Three pictures of a predictor on rows that it has not seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from predictors.conformal import Residuals
from predictors.learned import LearnedPredictor
from predictors.pairs import inputs_of

Floats = npt.NDArray[np.float64]

MOST_ROWS = 4_000
"""Of them the pictures are made: they would look the same with more."""
LEVELS = np.append(np.arange(50, 100, 5) / 100, 0.99)
"""An `upper` is never below the median, which is `expected`."""
BLUE, GREY, RED = "#2a6f97", "#888888", "#c1121f"


def draw_plots(predictor: LearnedPredictor, test: pd.DataFrame, folder: Path) -> list[Path]:
    """predicted_vs_true.png, calibration.png and error_by_length.png in `folder`, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = test if len(test) <= MOST_ROWS else test.sample(MOST_ROWS, random_state=0)
    whole = rows[~rows.capped].reset_index(drop=True)
    drawn = {
        "predicted_vs_true": _predicted_vs_true(predictor, rows),
        "calibration": _calibration(predictor, whole),
        "error_by_length": _error_by_length(predictor, whole),
    }
    for name, figure in drawn.items():
        figure.savefig(folder / f"{name}.png")
    return [folder / f"{name}.png" for name in drawn]


def _predicted_vs_true(predictor: LearnedPredictor, rows: pd.DataFrame) -> Figure:
    expected, true, cut = _expected(predictor, rows), _lengths(rows), rows.capped.to_numpy(dtype=bool)
    figure, axes = _axes("predicted (expected) tokens", "true tokens", (6.0, 5.4))
    low, high = 0.8 * min(expected.min(), true.min()), 1.25 * max(expected.max(), true.max())
    size = float(np.clip(4_000 / len(rows), 3, 20))
    axes.scatter(expected[~cut], true[~cut], s=size, alpha=0.35, color=BLUE, linewidths=0, label="whole answers")
    if cut.any():
        axes.scatter(
            expected[cut], true[cut], s=size, marker="^", color=RED, alpha=0.35, linewidths=0, label="cut: at least"
        )
    axes.plot([low, high], [low, high], color=GREY, linewidth=1, label="exact")
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    axes.legend(loc="upper left", markerscale=(30 / size) ** 0.5)
    return figure


def _calibration(predictor: LearnedPredictor, rows: pd.DataFrame) -> Figure:
    """How often the truth lies under what is said to hold with a given chance."""
    true, inputs = _lengths(rows), inputs_of(rows)
    shares = []
    for level in LEVELS:
        uppers = np.array([p.upper for p in _at(predictor, float(level)).predict(inputs)])
        shares.append(float(np.mean(true <= uppers)))
    figure, axes = _axes("quantile asked for", "share of true lengths under it", (5.4, 5.0))
    axes.plot([0.45, 1], [0.45, 1], color=GREY, linewidth=1, label="calibrated")
    axes.plot(LEVELS, shares, "o-", markersize=4, color=BLUE, label=f"{len(rows):,} answers")
    own = predictor.config.quantile
    axes.axvline(own, color=RED, linewidth=1, linestyle=":", label=f"`upper` ({own:g})")
    axes.set(xlim=(0.45, 1.02), ylim=(0.45, 1.02))
    axes.legend(loc="upper left")
    return figure


def _error_by_length(predictor: LearnedPredictor, rows: pd.DataFrame) -> Figure:
    ratio, true = _expected(predictor, rows) / _lengths(rows), _lengths(rows)
    deciles = pd.qcut(true, min(10, len(np.unique(true))), duplicates="drop")
    parts = [ratio[deciles == part] for part in deciles.categories]
    names = [f"{_shown(part.left, 1)}–{_shown(part.right, 0)}" for part in deciles.categories]
    figure, axes = _axes("true tokens, by decile", "predicted / true", (7.2, 4.6))
    axes.boxplot(parts, whis=(5, 95), showfliers=False, medianprops={"color": BLUE})
    axes.axhline(1, color=GREY, linewidth=1)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xticks(range(1, len(names) + 1), names, rotation=35, ha="right")
    return figure


def _at(predictor: LearnedPredictor, level: float) -> LearnedPredictor:
    """The same predictor, its `upper` at another quantile."""

    def at(residuals: Residuals) -> Residuals:
        uppers = [float(curve.quantile(np.array(level))) for curve in residuals.curves]
        return replace(residuals, uppers=uppers, quantile=level)

    model = predictor.model
    moved = replace(model, residuals=at(model.residuals), marginal=at(model.marginal))
    return LearnedPredictor(moved, predictor.config, predictor.embedder)


def _axes(x: str, y: str, size: tuple[float, float]) -> tuple[Figure, Axes]:
    figure = Figure(figsize=size, dpi=110, layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlabel=x, ylabel=y)
    axes.grid(alpha=0.25)
    return figure, axes


def _expected(predictor: LearnedPredictor, rows: pd.DataFrame) -> Floats:
    return np.array([prediction.expected for prediction in predictor.predict(inputs_of(rows))])


def _lengths(rows: pd.DataFrame) -> Floats:
    return rows.length.to_numpy(dtype=np.float64)


def _shown(edge: float, above: int) -> str:
    return f"{int(np.floor(edge)) + above:d}"
