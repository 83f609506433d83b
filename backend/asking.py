"""When is a policy asked? Only when its answer could differ from the last one."""

from __future__ import annotations

from policies.api import Decision, Time


class Asking:
    """What has happened since the last answer.

    A policy is asked again when something changed (arrival, finish, cancel, preemption, freed room, new prediction),
    when a hold or a revisit has come due, or when its last answer was cut short by budget or slots.
    """

    __slots__ = ("answered_at", "changed", "cut_short", "hold_until", "revisit_at", "revisit_step")

    def __init__(self) -> None:
        self.changed = False
        self.cut_short = False
        self.answered_at: Time = -1
        self.hold_until: Time | None = None
        self.revisit_at: Time | None = None
        self.revisit_step: int | None = None

    def due(self, now: Time, step: int) -> bool:
        return (
            self.changed
            or self.cut_short
            or (self.hold_until is not None and now >= self.hold_until)
            or (self.revisit_at is not None and now >= self.revisit_at)
            or (self.revisit_step is not None and step >= self.revisit_step)
        )

    def answered(self, decision: Decision, now: Time, step: int) -> None:
        self.changed = self.cut_short = False
        self.answered_at = now
        self.hold_until = decision.hold_until
        self.revisit_at = decision.revisit_at
        self.revisit_step = None if decision.revisit_steps is None else step + max(1, decision.revisit_steps)

    def wake_at(self, now: Time) -> Time | None:
        """The next time at which `due` turns true by the clock alone."""
        hold, revisit = self.hold_until, self.revisit_at
        if hold is not None and hold > now and (revisit is None or not now < revisit < hold):
            return hold
        return revisit if revisit is not None and revisit > now else None
