"""The first stage: a ridge for what words say and a kernel for what is alike, mixed as was best on unseen prompts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from predictors.encoder import Encoded, Floats
from predictors.kernel import KernelRidge
from predictors.linear import Codes, SharedRidge, out_of_fold
from predictors.survival import uncut


@dataclass(frozen=True)
class Told:
    """What the first stage says of n lengths, in deviations z from their tenant's."""

    z: Floats  # (n,)
    anybody: Floats  # (n,) the ridge's part that all tenants share
    alike: Floats  # (n,) the kernel's part


@dataclass(frozen=True)
class FirstStage:
    ridge: SharedRidge
    kernel: KernelRidge
    share: float  # of the kernel, from 0 to 1

    @classmethod
    def fit(
        cls,
        encoded: Encoded,
        codes: Codes,
        z: Floats,
        capped: npt.NDArray[np.bool_],
        folds: Codes,
        tenants: int,
        seed: int,
    ) -> tuple[FirstStage, Told]:
        """The model, and what it would say of each row, had it seen no row of that row's fold."""
        own, anybody = out_of_fold(encoded.linear, codes, z, folds, tenants)
        full = own + uncut(z - own, capped)
        kernel, alike = KernelRidge.fit(encoded.points, full, folds, seed)
        share = _share(own, alike, full)
        ridge = SharedRidge.fit(encoded.linear, codes, z, tenants)
        return cls(ridge, kernel, share), Told(own + share * (alike - own), anybody, alike)

    def predict(self, encoded: Encoded, codes: Codes) -> Told:
        own, anybody = self.ridge.predict(encoded.linear, codes)
        alike = self.kernel.predict(encoded.points)
        return Told(own + self.share * (alike - own), anybody, alike)


def _share(own: Floats, alike: Floats, z: Floats) -> float:
    """Of the second, in the mixture that comes nearest."""
    apart = alike - own
    size = float(apart @ apart)
    return min(max(float(apart @ (z - own)) / size, 0.0), 1.0) if size else 0.0
