"""Beside the ridge: prompts that are alike get like lengths.

Kernel ridge regression with a Gaussian kernel on the mean length of each prompt, in deviations from its tenant's: it is
shared by all tenants. Of more than MOST_PROMPTS different prompts it learns from as many, drawn at random.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import spotrf, spotri

from predictors.encoder import Floats, Points
from predictors.linear import Codes

MOST_PROMPTS = 4000
STRENGTH = 0.3
"""Of the penalty, for a prompt with one row; where a prompt has more, its mean is known the better."""
CHUNK = 4096
"""Rows compared at once."""


@dataclass(frozen=True)
class KernelRidge:
    prompts: Points  # (m, width)
    weights: Points  # (m,)

    @classmethod
    def fit(cls, points: Points, z: Floats, folds: Codes, seed: int) -> tuple[KernelRidge, Floats]:
        """From points (n, width), z (n,) and folds (n,), equal for equal points: the model, and (n,) what it would say
        of each row, had it seen no row of that row's fold."""
        prompts, of_row, rows = _prompts(points, seed)
        seen = of_row >= 0
        means = np.bincount(of_row[seen], z[seen], len(prompts)) / rows
        fold_of = np.empty(len(prompts), dtype=np.int64)
        fold_of[of_row[seen]] = folds[seen]
        inverse = _inverse(closeness(prompts, prompts), STRENGTH / rows)
        weights = (inverse @ means).astype(np.float32)
        blind = np.empty(len(prompts))
        for fold in np.unique(fold_of):
            at = np.flatnonzero(fold_of == fold)
            blind[at] = means[at] - np.linalg.solve(inverse[np.ix_(at, at)], weights[at])
        model = cls(prompts, weights)
        told = np.empty(len(z))
        told[seen], told[~seen] = blind[of_row[seen]], model.predict(points[~seen])
        return model, told

    def predict(self, points: Points) -> Floats:
        """(n,)"""
        told = np.empty(len(points))
        for start in range(0, len(points), CHUNK):
            told[start : start + CHUNK] = closeness(points[start : start + CHUNK], self.prompts) @ self.weights
        return told


def closeness(points: Points, others: Points) -> Points:
    """(n, m) the kernel: 1 where two are the same, towards 0 as they differ."""
    near = points @ others.T
    near *= 2
    near -= np.sum(points**2, axis=1)[:, None]
    near -= np.sum(others**2, axis=1)
    np.exp(np.minimum(near, 0, out=near), out=near)
    return near


def _prompts(points: Points, seed: int) -> tuple[Points, Codes, Floats]:
    """(m, width) different points, (n,) which of them each point is, -1: none, and (m,) how many are."""
    rng = np.random.default_rng(seed)
    _, first, which, rows = np.unique(  # different points have different shadows
        points.astype(np.float64) @ rng.normal(size=points.shape[1]),
        return_index=True, return_inverse=True, return_counts=True,
    )  # fmt: skip
    drawn = rng.permutation(len(first))[:MOST_PROMPTS]
    place = np.full(len(first), -1)
    place[drawn] = np.arange(len(drawn))
    return points[first[drawn]], place[which], rows[drawn].astype(np.float64)


def _inverse(kernel: Points, penalty: Floats) -> Points:
    """Of the kernel with the penalty on its diagonal."""
    kernel[np.diag_indices(len(kernel))] += penalty
    lower = spotri(spotrf(kernel, lower=1)[0], lower=1)[0]
    return np.asarray(np.tril(lower) + np.tril(lower, -1).T)
