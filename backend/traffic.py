"""The seam between traffic and drivers: requests as columns, one row a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.int64]

NONE = -1
"""In an integer column: not given."""


@dataclass(frozen=True, slots=True)
class Tenant:
    name: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Traffic:
    """Everything that clients will do, in order of arrival. Times are integer picoseconds.

    `output_tokens` is what the request would make if nobody stopped it: the engine never sees it.
    With `concurrency`, so many clients each send their next request when the one before has ended, and a request
    arrives at that moment, or at its own `arrival` if that is later.
    """

    arrival: Column  # (n,) non-decreasing, >= 0
    prompt_tokens: Column  # (n,)
    output_tokens: Column  # (n,) true lengths, >= 1; NONE: unknown (a real model decides)
    max_tokens: Column  # (n,) the client's limit; NONE: no limit of its own
    tenant: Column  # (n,) index into `tenants`
    user: Column  # (n,) number of the user within the run
    priority: Column  # (n,) smaller is more urgent
    deadline: Column  # (n,) absolute, or NONE
    cancel_after: Column  # (n,) the client leaves so long after arrival, or NONE
    cancel_tokens: Column  # (n,) the client leaves when it has so many tokens, or NONE
    patience: Column  # (n,) the client leaves if its first token takes longer, or NONE
    slo: Column  # (n,) index into `slo_classes`
    tenants: Sequence[Tenant]
    slo_classes: Sequence[str] = ("default",)
    ids: Sequence[str] | None = None  # None: the row number
    prompts: Sequence[str] | None = None
    concurrency: int | None = None

    def __len__(self) -> int:
        return len(self.arrival)

    def id(self, row: int) -> str:
        return str(row) if self.ids is None else self.ids[row]
