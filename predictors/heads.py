"""The second stage: trees that correct the first, from the hand-made features, the topics and the tenant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from predictors.encoder import Floats
from predictors.survival import uncut
from predictors.trees import Trees

LEAST_SPREAD = 0.2


@dataclass(frozen=True)
class Material:
    """What a head is fitted to; lengths as deviations z from their tenant's, in its standard deviations."""

    dense: Floats  # (n, features), the tenant's code last (NaN: unseen)
    first: Floats  # (n,) the first stage's prediction of z, by folds that saw no prompt of its group
    z: Floats  # (n,) where `capped`, at least
    capped: npt.NDArray[np.bool_]
    center: Floats  # (n,) z -> log-length: center + scale * z
    scale: Floats

    def take(self, rows: npt.NDArray[np.bool_]) -> Material:
        lengths = (self.z[rows], self.capped[rows], self.center[rows], self.scale[rows])
        return Material(self.dense[rows], self.first[rows], *lengths)

    def errors(self) -> Floats:
        """z - first; of a cut answer, what it is on average among those as long and longer."""
        return uncut(self.z - self.first, self.capped)


@dataclass(frozen=True)
class Located:
    z: Floats  # (n,) where the middle of the length's distribution lies
    score: Floats | None = None  # (n,)
    probabilities: Floats | None = None  # (n, bins)
    edges: Floats | None = None  # (bins - 1,) tokens, included in the bin below


class Head(Protocol):
    def locate(self, dense: Floats, first: Floats, center: Floats, scale: Floats) -> Located: ...


@dataclass(frozen=True)
class LengthHead:
    trees: Trees

    @classmethod
    def fit(cls, material: Material, rounds: int, seed: int) -> LengthHead:
        return cls(Trees.grow(material.dense, material.errors(), rounds, seed))

    def locate(self, dense: Floats, first: Floats, center: Floats, scale: Floats) -> Located:
        return Located(first + self.trees.predict(dense)[:, 0])


@dataclass(frozen=True)
class Spread:
    """How far the truth is off, by what is asked: trees on the log of the first stage's errors."""

    trees: Trees

    @classmethod
    def fit(cls, material: Material, rounds: int, seed: int) -> Spread:
        size = np.log(np.abs(material.errors()) + 0.1)
        return cls(Trees.grow(material.dense, size, rounds // 4, seed))

    def predict(self, dense: Floats) -> Floats:
        spread: Floats = np.maximum(np.exp(self.trees.predict(dense)[:, 0]), LEAST_SPREAD)
        return spread
