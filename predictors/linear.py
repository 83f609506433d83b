"""A ridge regression whose weights are shared by all tenants, with a deviation for each.

One model for all learns what all prompts have in common, and a tenant with enough rows its own ways (Daumé III,
"Frustratingly easy domain adaptation", 2007). A tenant never seen gets the shared part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.linear_model import Ridge

from predictors.encoder import Floats

Codes = npt.NDArray[np.int64]

ALPHA = 2.0
MOST_TENANTS = 24
"""Each costs a copy of the weights."""
FEWEST_ROWS = 100
"""A tenant with fewer is treated as one never seen."""
UNSEEN = -1


@dataclass(frozen=True)
class Tenants:
    """The tenants that the model knows, and the log-length of each: the last entry is of everybody."""

    names: list[str]
    center: Floats  # (tenants + 1,) mean
    scale: Floats  # (tenants + 1,) standard deviation, > 0

    @classmethod
    def fit(cls, tenants: npt.NDArray[np.object_], logs: Floats) -> Tenants:
        names, counts = np.unique(tenants.astype(str), return_counts=True)
        often = np.argsort(-counts, kind="stable")[:MOST_TENANTS]
        known = [str(names[i]) for i in often if counts[i] >= FEWEST_ROWS]
        parts = [logs[tenants == name] for name in known] + [logs]
        return cls(known, np.array([p.mean() for p in parts]), np.array([p.std() + 1e-6 for p in parts]))

    def codes(self, tenants: npt.NDArray[np.object_]) -> Codes:
        """(n,) place of each in `names`; UNSEEN, which indexes the entry of everybody, otherwise."""
        place = {name: i for i, name in enumerate(self.names)}
        return np.array([place.get(tenant, UNSEEN) for tenant in tenants], dtype=np.int64)


@dataclass(frozen=True)
class SharedRidge:
    shared: Floats  # (features,)
    own: Floats  # (features, tenants) deviations
    intercept: float

    @classmethod
    def fit(cls, x: sparse.csr_matrix, codes: Codes, z: Floats, tenants: int) -> SharedRidge:
        """x (n, features), codes (n,), z (n,) lengths as deviations from their tenant's."""
        apart = tenants if tenants > 1 else 0
        blocks = [x] + [_only(codes == k) @ x for k in range(apart)]
        ridge = Ridge(alpha=ALPHA * (2 if apart else 1), solver="lsqr", tol=1e-3)
        ridge.fit(sparse.hstack(blocks, format="csr"), z)
        weights = ridge.coef_.reshape(1 + apart, x.shape[1])
        return cls(weights[0].copy(), np.ascontiguousarray(weights[1:].T), float(ridge.intercept_))

    def predict(self, x: sparse.csr_matrix, codes: Codes) -> tuple[Floats, Floats]:
        """(n,) as of its tenant, and (n,) as of anybody."""
        anybody = np.asarray(x @ self.shared + self.intercept)
        if not self.own.shape[1]:
            return anybody, anybody
        deviations = np.asarray(x @ self.own)[np.arange(len(codes)), codes]
        return anybody + np.where(codes == UNSEEN, 0.0, deviations), anybody


def out_of_fold(x: sparse.csr_matrix, codes: Codes, z: Floats, folds: Codes, tenants: int) -> tuple[Floats, Floats]:
    """`SharedRidge.predict` for each row, by a ridge that saw no row of its fold."""
    own, anybody = np.zeros(len(z)), np.zeros(len(z))
    for fold in np.unique(folds):
        out = folds == fold
        ridge = SharedRidge.fit(x[~out], codes[~out], z[~out], tenants)
        own[out], anybody[out] = ridge.predict(x[out], codes[out])
    return own, anybody


def _only(rows: npt.NDArray[np.bool_]) -> sparse.csr_matrix:
    """(n, n) times a matrix: these rows of it, and zeros."""
    at = np.flatnonzero(rows)
    return sparse.csr_matrix((np.ones(len(at)), (at, at)), shape=(len(rows), len(rows)))
