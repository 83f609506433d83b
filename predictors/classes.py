"""Which bin? The chance of each of k bins that hold equally many training rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from predictors.encoder import Floats
from predictors.heads import Located, Material
from predictors.trees import Trees


@dataclass(frozen=True)
class ClassHead:
    edges: Floats  # (bins - 1,) upper edges in tokens, included; the last bin has none
    middle: Floats  # (bins,) mean log-length of each bin
    trees: Trees

    @classmethod
    def fit(cls, material: Material, bins: int, rounds: int, seed: int) -> ClassHead:
        """Raises ValueError if so many lengths are equal that a bin stays empty."""
        logs = material.center + material.scale * (material.first + material.errors())
        edges = np.floor(np.exp(np.quantile(logs, np.arange(1, bins) / bins)) + 1e-6)
        places = np.searchsorted(edges, np.exp(logs) - 1e-6)
        if len(np.unique(places)) < bins:
            raise ValueError(f"{bins} bins: too many lengths are equal; upper edges would be {edges.tolist()}")
        middle = np.array([logs[places == k].mean() for k in range(bins)])
        x = _features(material.dense, material.first)
        return cls(edges, middle, Trees.grow_classes(x, places, rounds // 3, seed))

    def locate(self, dense: Floats, first: Floats, center: Floats, scale: Floats) -> Located:
        probabilities = softmax(self.trees.predict(_features(dense, first)), axis=1)
        return Located((probabilities @ self.middle - center) / scale, probabilities=probabilities, edges=self.edges)


def _features(dense: Floats, first: Floats) -> Floats:
    return np.hstack([first[:, None], dense])
