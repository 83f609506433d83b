"""Mean, deviation and percentiles of a sample that may hold repeats and right-censored values."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Sample:
    """`values` (n,), each as often as `repeats` says, and `censored` more of which only a lower bound is known.

    The censored rank above all others: a percentile that reaches into them is None, and so are mean, deviation and
    maximum where there is one. Nothing is ever NaN.
    """

    def __init__(self, values: npt.ArrayLike, repeats: npt.ArrayLike | None = None, censored: int = 0) -> None:
        values_ = np.asarray(values, dtype=np.float64)
        counts = np.ones(len(values_), dtype=np.int64) if repeats is None else np.asarray(repeats, dtype=np.int64)
        some = np.flatnonzero(counts > 0)
        order = some[np.argsort(values_[some], kind="stable")]
        self.values: Floats = values_[order]
        self._counts = counts[order]
        self._upto = np.cumsum(self._counts)
        self.n = int(self._upto[-1]) if len(order) else 0
        self.censored = censored

    @property
    def mean(self) -> float | None:
        return float((self.values * self._counts).sum() / self.n) if self._complete else None

    @property
    def std(self) -> float | None:
        """Of the population, as numpy and vLLM have it."""
        if self.mean is None:
            return None
        return math.sqrt(float((np.square(self.values - self.mean) * self._counts).sum()) / self.n)

    @property
    def max(self) -> float | None:
        return float(self.values[-1]) if self._complete else None

    def percentile(self, q: float) -> float | None:
        """Linear between the two nearest ranks, as `numpy.percentile` of the values written out."""
        place = q * (self.n + self.censored - 1) / 100
        low, high = math.floor(place), math.ceil(place)
        if not 0 <= low <= high < self.n:
            return None
        a, b = (float(self.values[np.searchsorted(self._upto, rank, side="right")]) for rank in (low, high))
        return a + (b - a) * (place - low)

    def figures(self, name: str, percentiles: Iterable[float]) -> dict[str, Any]:
        """In milliseconds where the values are; the keys are those of `vllm bench serve`, and n_<name> beside them."""
        unit = f"{name}_ms"
        return {
            f"n_{name}": self.n,
            f"mean_{unit}": self.mean,
            f"median_{unit}": self.percentile(50),
            f"std_{unit}": self.std,
            **{f"p{q:g}_{unit}": self.percentile(q) for q in percentiles},
            f"max_{unit}": self.max,
        }

    @property
    def _complete(self) -> bool:
        return self.n > 0 and not self.censored
