"""Service-level objectives: what each class of requests was promised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bench.errors import BadInput
from bench.population import COMPLETED, PS_PER_MS, Mask, Population


@dataclass
class SloTargets:
    """Upper bounds of one class; None: not promised."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2el_ms: float | None = None

    def __post_init__(self) -> None:
        for name, bound in vars(self).items():
            if bound is not None and not bound > 0:
                raise BadInput(f"{name}={bound}: an SLO is a number of milliseconds above 0, or null for none")


def met(people: Population, targets: Mapping[str, SloTargets]) -> Mask:
    """(n,) who completed and met **all** SLOs of their class.

    A bound on TPOT binds nobody with a single token, which has none. Raises BadInput for a class without targets.
    """
    good: Mask = people.state == COMPLETED
    for i in np.unique(people.slo):
        name = people.slo_names[i]
        if name not in targets:
            raise BadInput(
                f"slo: requests of class {name!r} have no targets; there are targets for {', '.join(targets)}"
            )
        of_class = people.slo == i
        for bound, took, steps in _bounds(people, targets[name]):
            good &= ~of_class | (took <= bound * PS_PER_MS * steps)
    return good


def _bounds(people: Population, targets: SloTargets) -> list[tuple[float, np.ndarray, np.ndarray]]:
    """Each bound in ms with what it bounds, in picoseconds over a number of steps."""
    once = np.ones(len(people), dtype=np.int64)
    measured = [
        (targets.ttft_ms, people.first_token - people.arrival, once),
        (targets.tpot_ms, people.last_token - people.first_token, np.maximum(people.output_tokens - 1, 0)),
        (targets.e2el_ms, people.ended - people.arrival, once),
    ]
    return [(bound, took, steps) for bound, took, steps in measured if bound is not None]
