"""Seconds to integer picoseconds, and how far those reach."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from backend.traffic import NONE, Column

SECOND = 10**12
"""Picoseconds."""
LONGEST_ARRIVAL_S = 7_000_000
"""81 days: with LONGEST_SPAN_S on top still inside 64 bits of picoseconds."""
LONGEST_SPAN_S = 2_000_000


def picoseconds(seconds: npt.NDArray[np.float64]) -> Column:
    return np.rint(seconds * SECOND).astype(np.int64)


def constant(count: int, seconds: float | None) -> Column:
    """The same time in every row, or NONE."""
    return np.full(count, NONE if seconds is None else round(seconds * SECOND), np.int64)
