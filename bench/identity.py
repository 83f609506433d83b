"""What must hold of every run's records."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from backend.records import STATES
from bench.population import Population


class RecordsBroken(Exception):
    """Records contradict themselves: a defect of the engine or the driver, never of the input."""


def counts(people: Population) -> dict[str, int]:
    """How many of `people` there are, and how many of them ended in which way.

    Raises RecordsBroken unless submitted = completed + cancelled + rejected + failed + unfinished.
    """
    by_state = {name: people.count(i) for i, name in enumerate(STATES)}
    if sum(by_state.values()) != len(people):
        raise RecordsBroken(f"{len(people)} requests submitted, but {by_state}")
    return {"submitted": len(people), **by_state}


def check_records(people: Population) -> None:
    """Each request once, none lost, and its times in order. Raises RecordsBroken."""
    numbers = np.sort(people.number)
    if (np.diff(numbers) != 1).any():
        at = int(np.argmax(np.diff(numbers) != 1))
        raise RecordsBroken(f"requests: {numbers[at]} is followed by {numbers[at + 1]}; each has to be there once")
    life = ("arrival", "scheduled", "first_token", "last_token")
    for earlier, later in [*pairwise(life), *((moment, "ended") for moment in life if moment != "scheduled")]:
        a, b = getattr(people, earlier), getattr(people, later)
        wrong = (a >= 0) & (b >= 0) & (b < a)
        if wrong.any():
            i = int(np.argmax(wrong))
            raise RecordsBroken(f"request {people.number[i]}: {later} {b[i]} before {earlier} {a[i]} (picoseconds)")
