"""The clock of a run in real time."""

from __future__ import annotations

from time import monotonic_ns

from policies.api import Time


class Clock:
    """Picoseconds since it was made; any thread may read it. Setting the system's clock changes nothing."""

    def __init__(self) -> None:
        self._began = monotonic_ns()

    def __call__(self) -> Time:
        return (monotonic_ns() - self._began) * 1000

    def until(self, time: Time) -> float:
        """Seconds from now to `time`; negative if that is over."""
        return (time - self()) / 1e12
