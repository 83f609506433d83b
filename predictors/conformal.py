"""How far off predictions were on prompts held out from training, for everybody and for each tenant with enough rows.

`upper` is the point that a share `quantile` of the *known* lengths stayed under, by rank among n + 1: on fresh requests
it then holds with at least that chance, whatever the distribution (Vovk et al. 2005). A cut length tells no rank, so
cut rows do not enter there; in the survival curve they count as "at least".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from predictors.encoder import Floats
from predictors.linear import Codes
from predictors.pairs import BadRows
from predictors.survival import Survival

FEWEST_OF_TENANT = 200


@dataclass(frozen=True)
class Residuals:
    """One entry a tenant, by code; the last is of everybody."""

    curves: list[Survival]
    uppers: list[float]
    quantile: float

    @classmethod
    def fit(
        cls, errors: Floats, capped: npt.NDArray[np.bool_], codes: Codes, tenants: int, quantile: float
    ) -> Residuals:
        """(n,) errors of held-out rows. Raises BadRows if too few are known for the quantile."""
        parts = [(codes == code) for code in range(tenants)] + [np.ones(len(codes), dtype=bool)]
        enough = [part if np.sum(part & ~capped) >= FEWEST_OF_TENANT else parts[-1] for part in parts]
        curves = [Survival.fit(errors[part], capped[part]) for part in enough]
        return cls(curves, [rank_bound(errors[part & ~capped], quantile) for part in enough], quantile)

    def middle_and_upper(self, codes: Codes, made: Floats) -> tuple[Floats, Floats]:
        """Of errors that are beyond `made` (n,), which is -inf where nothing was made."""
        middle, upper = np.empty(len(codes)), np.empty(len(codes))
        for code in np.unique(codes):
            rows = codes == code
            curve, bound = self.curves[code], self.uppers[code]
            middle[rows] = curve.quantile_beyond(0.5, made[rows])
            later = curve.quantile_beyond(self.quantile, made[rows])
            upper[rows] = np.where(np.isneginf(made[rows]), bound, later)
        return middle, upper


def rank_bound(errors: Floats, quantile: float) -> float:
    """The error that the next one stays under with chance >= quantile."""
    rank = math.ceil((len(errors) + 1) * quantile)
    if rank > len(errors):
        raise BadRows(
            f"{len(errors)} known lengths are held out, too few to calibrate a {quantile:.1%} quantile: give more rows"
        )
    return float(np.sort(errors)[rank - 1])
