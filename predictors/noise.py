"""Kinds of error in a predicted length, and how to set their size. Chances are uniform on (0, 1)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol

import numpy as np

NORMAL = NormalDist()
SAMPLE = 500
"""Lengths that `fit_tau` looks at: 125,000 pairs."""


class Noise(Protocol):
    def blur(self, tokens: float, chance: float) -> float:
        """A prediction of a length that is `tokens`."""

    def upper(self, quantile: float) -> Callable[[float], float]:
        """That quantile of the length, by the length that was predicted."""

    @property
    def rest(self) -> Noise:
        """The noise on what is left to make of a request that outran its prediction."""


@dataclass(frozen=True, slots=True)
class LogNoise:
    """Normal noise on the log of the length; the result is drawn towards the median of all lengths.

    With `pull` 0 log(prediction / truth) has standard deviation `std`. With `pull` = std² / (std² + variance of the
    log-lengths), the prediction is the best guess that can be made from the blurred length, and spreads less than they.
    """

    std: float
    pull: float = 0.0
    median: float = 1.0

    def blur(self, tokens: float, chance: float) -> float:
        seen = math.log(tokens) + self.std * NORMAL.inv_cdf(chance)
        return math.exp((1 - self.pull) * seen + self.pull * math.log(self.median))

    def upper(self, quantile: float) -> Callable[[float], float]:
        factor = math.exp(self.std * math.sqrt(1 - self.pull) * NORMAL.inv_cdf(quantile))
        return lambda expected: expected * factor

    @property
    def rest(self) -> LogNoise:
        return LogNoise(self.std * math.sqrt(1 - self.pull))


@dataclass(frozen=True, slots=True)
class BinNoise:
    """The middle of the truth's bin, or with chance `error` each of the bin below and of the bin above.

    At the border the impossible side stays. Bin i ends at ``edges[i]``, included; the first begins at 0.
    """

    error: float
    edges: tuple[float, ...]

    def blur(self, tokens: float, chance: float) -> float:
        place = self._bin(tokens) + (chance > 1 - self.error) - (chance < self.error)
        place = min(max(place, 0), len(self.edges) - 1)
        return (self.edges[place] + (self.edges[place - 1] if place else 0.0)) / 2

    def upper(self, quantile: float) -> Callable[[float], float]:
        """The upper edge of the predicted bin, or of the next where the truth lies above too often."""
        further = self.error > 1 - quantile
        return lambda expected: self.edges[min(self._bin(expected) + further, len(self.edges) - 1)]

    @property
    def rest(self) -> BinNoise:
        return self

    def _bin(self, tokens: float) -> int:
        return min(bisect_left(self.edges, tokens), len(self.edges) - 1)


def lognormal_tau(tau: float, log_std: float, median: float) -> LogNoise:
    """Noise with which predictions of lognormal lengths reach Kendall's tau: normal pairs have tau = 2/pi asin(rho)."""
    rho = math.sin(math.pi / 2 * tau)
    return LogNoise(log_std * math.sqrt(1 / rho**2 - 1), 1 - rho**2, median)


def fit_tau(tau: float, lengths: Sequence[int]) -> LogNoise:
    """Noise with which predictions of these lengths reach Kendall's tau_b in expectation.

    A pair whose logs differ by d keeps its order with chance Phi(d / (std sqrt 2)); pairs of equal lengths count for
    neither order. Raises ValueError where ties leave no room for so high a tau.
    """
    # not for free, and needed by this function alone
    from scipy.optimize import brentq
    from scipy.special import erf

    ranked = np.sort(np.asarray(lengths, dtype=float))
    logs = np.log(ranked[np.linspace(0, len(ranked) - 1, min(len(ranked), SAMPLE)).round().astype(int)])
    first, second = np.triu_indices(len(logs), 1)
    differences = logs[second] - logs[first]
    pairs, differences = len(differences), differences[differences > 0]
    highest = math.sqrt(len(differences) / pairs) if pairs else 0.0
    if tau >= highest:
        raise ValueError(f"kendall_tau: {tau} cannot be reached; equal lengths leave at most {highest:.3f}")

    def excess(log_std: float) -> float:
        agreement = erf(differences / (2 * math.exp(log_std))).sum()
        return float(agreement / math.sqrt(pairs * len(differences))) - tau

    std = math.exp(brentq(excess, -20, 20))
    variance = float(logs.var())
    return LogNoise(std, std**2 / (std**2 + variance), math.exp(float(logs.mean())))
