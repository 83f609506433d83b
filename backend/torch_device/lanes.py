"""The three things that a step does, one after the other or side by side: inputs in, compute, results out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from policies.api import Time

Act = Callable[[], None]


class Flight(Protocol):
    """A step under way."""

    def land(self) -> tuple[Time, Time]:
        """Block until its results are on the host; when it began and ended to compute, by the clock."""


class Lanes(Protocol):
    """Steps are launched in order, from one thread, and landed in order. At most two are under way."""

    captures: bool
    """`record` repeats what was done on the device alone: whatever the host did or decided is as it was."""

    def set_clock(self, clock: Callable[[], Time]) -> None: ...

    def launch(self, copy_in: Act, compute: Act, copy_out: Act) -> Flight:
        """Do the three, each once what it needs from the one before is there; may return before any is done."""

    def record(self, act: Act) -> Act:
        """What repeats the work of `act` on the same memory, as cheaply as can be. Does it at least once."""

    def settle(self) -> None:
        """Block until nothing is under way."""


@dataclass(frozen=True, slots=True)
class Landed:
    started: Time
    ended: Time

    def land(self) -> tuple[Time, Time]:
        return self.started, self.ended


class InTurn:
    """On the processor: one after the other, at once."""

    captures = False

    def __init__(self, clock: Callable[[], Time]) -> None:
        self._clock = clock

    def set_clock(self, clock: Callable[[], Time]) -> None:
        self._clock = clock

    def launch(self, copy_in: Act, compute: Act, copy_out: Act) -> Landed:
        started = self._clock()
        copy_in()
        compute()
        copy_out()
        return Landed(started, self._clock())

    def record(self, act: Act) -> Act:
        act()
        return act

    def settle(self) -> None:
        """Nothing ever is."""
