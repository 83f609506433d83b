"""Who is shorter? For shortest-first only the order counts, so the order is what is learned.

The objective is pairwise logistic, with a linear score (RankNet, Burges et al. 2005, without its hidden layer): of two
requests of one tenant, the difference of their scores says how likely the first is the longer. The score becomes a
length by isotonic regression.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from predictors.encoder import FARTHEST, Floats
from predictors.heads import Located, Material

PAIRS_PER_ROW = 5
MOST_PAIRS = 100_000
REGULARITY = 1e-3
"""C of the logistic regression."""


@dataclass(frozen=True)
class RankHead:
    center: Floats  # (features,)
    scale: Floats
    weights: Floats
    offset: float  # standardised features @ weights + offset is a score of about the size of z
    scores: Floats  # (k,) increasing
    lengths: Floats  # (k,) the z at each score, not decreasing

    @classmethod
    def fit(cls, material: Material, seed: int) -> RankHead:
        x = _features(material.dense, material.first)
        center, scale = np.nanmean(x, axis=0), np.nanstd(x, axis=0) + 1e-9
        x = _standard(x, center, scale)
        longer, shorter = _pairs(material, np.random.default_rng(seed))
        signs = np.resize([1, -1], len(longer))  # as many pairs one way round as the other
        model = LogisticRegression(C=REGULARITY, fit_intercept=False)
        model.fit((x[longer] - x[shorter]) * signs[:, None], signs)
        z = material.first + material.errors()
        slope, offset = np.polyfit(x @ model.coef_[0], z, 1)
        weights = slope * model.coef_[0]
        curve = IsotonicRegression().fit(x @ weights + offset, z)
        return cls(center, scale, weights, float(offset), curve.X_thresholds_, curve.y_thresholds_)

    def locate(self, dense: Floats, first: Floats, center: Floats, scale: Floats) -> Located:
        score = _standard(_features(dense, first), self.center, self.scale) @ self.weights + self.offset
        return Located(np.interp(score, self.scores, self.lengths), score=center + scale * score)


def _features(dense: Floats, first: Floats) -> Floats:
    """The first stage's prediction beside all but the tenant."""
    return np.hstack([first[:, None], dense[:, :-1]])


def _standard(x: Floats, center: Floats, scale: Floats) -> Floats:
    return np.nan_to_num(np.clip((x - center) / scale, -FARTHEST, FARTHEST))


def _pairs(material: Material, rng: np.random.Generator) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Rows of one tenant of which the first is longer for sure: the shorter one was not cut."""
    n = min(len(material.z) * PAIRS_PER_ROW, MOST_PAIRS)
    order = np.lexsort((rng.random(len(material.z)), material.dense[:, -1]))
    place = rng.integers(0, len(order), n)
    first, second = order[place], order[np.minimum(place + rng.integers(1, 50, n), len(order) - 1)]
    longer = np.where(material.z[first] > material.z[second], first, second)
    shorter = np.where(longer == first, second, first)
    tenant = np.nan_to_num(material.dense[:, -1], nan=-1)
    sure = (material.z[longer] > material.z[shorter]) & ~material.capped[shorter] & (tenant[longer] == tenant[shorter])
    return longer[sure], shorter[sure]
