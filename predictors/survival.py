"""How far truths lie from predictions, as a survival curve that also learns from answers that were cut.

A cut answer says "at least": Kaplan and Meier's estimator counts it as at risk up to its end, and as no death. Beyond
the last tenth of the known values the curve goes on as an exponential, so that something is always left: of a length
on the log scale that is a Pareto tail, and what is left to make grows with what was made.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from predictors.encoder import Floats

TAIL = 0.1
LEAST_TAIL_SCALE = 1e-3


@dataclass(frozen=True)
class Survival:
    """P(value > points[i]) = alive[i], linear between points, exponential behind the last."""

    points: Floats  # (k,) strictly increasing, k >= 2
    alive: Floats  # (k,) from 1 down, > 0
    tail_scale: float  # mean excess over the last point

    @classmethod
    def fit(cls, values: Floats, capped: npt.NDArray[np.bool_]) -> Survival:
        """values (n,), n >= 2; where `capped`, the value is at least that. With none known, all count as known."""
        if capped.all():
            capped = np.zeros(len(values), dtype=bool)
        points, alive = _kaplan_meier(values, capped)
        behind = max(1, int(np.sum(alive > TAIL)))  # at least two points stay
        kept = min(behind, len(points) - 1)
        start = points[kept]
        excess = np.maximum(values[values > start] - start, 0.0)
        deaths = np.sum(~capped & (values > start))
        scale = float(excess.sum() / max(1, deaths))
        return cls(points[: kept + 1], alive[: kept + 1], max(scale, LEAST_TAIL_SCALE))

    def beyond(self, value: Floats) -> Floats:
        """P(> value), > 0 however large the value, short of underflow."""
        excess = np.maximum(np.asarray(value) - self.points[-1], 0.0)
        inside: Floats = np.interp(value, self.points, self.alive)
        tail: Floats = np.exp(-excess / self.tail_scale)
        return inside * tail

    def quantile(self, p: Floats) -> Floats:
        """The value with P(> value) = 1 - p, for 0 <= p < 1."""
        left = 1 - np.asarray(p, dtype=np.float64)
        inside = np.interp(left, self.alive[::-1], self.points[::-1])
        tail = self.points[-1] + self.tail_scale * np.log(self.alive[-1] / np.maximum(left, 1e-300))
        return np.where(left < self.alive[-1], tail, inside)

    def quantile_beyond(self, p: float, value: Floats) -> Floats:
        """The quantile among those that are > value: never below it."""
        value = np.asarray(value, dtype=np.float64)
        inside = self.quantile(1 - (1 - p) * self.beyond(value))
        memoryless = value - self.tail_scale * np.log(1 - p)
        return np.maximum(np.where(value >= self.points[-1], memoryless, inside), value)

    def mean_beyond(self, value: Floats) -> Floats:
        """The mean among those that are > value, by twenty of their quantiles."""
        grid = (np.arange(20) + 0.5) / 20
        mean: Floats = np.mean([self.quantile_beyond(float(p), value) for p in grid], axis=0)
        return mean


def uncut(errors: Floats, capped: npt.NDArray[np.bool_]) -> Floats:
    """(n,) errors, where `capped` (at least) raised to the mean of those as large and larger."""
    if not capped.any() or capped.all():
        return errors
    full = errors.copy()
    full[capped] = Survival.fit(errors, capped).mean_beyond(errors[capped])
    return full


def _kaplan_meier(values: Floats, capped: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """The curve at each known value, beginning with 1 just below the least."""
    deaths_at, deaths = np.unique(values[~capped], return_counts=True)
    at_risk = len(values) - np.searchsorted(np.sort(values), deaths_at, side="left")
    alive = np.maximum(np.cumprod(1 - deaths / at_risk), 0.5 / len(values))
    first = deaths_at[0] - LEAST_TAIL_SCALE
    return np.concatenate([[first], deaths_at]), np.concatenate([[1.0], alive])
