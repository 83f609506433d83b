"""What steps cost in real time: the host by its own clock, the device by what it says, and what hid what."""

from __future__ import annotations

from collections import deque

from backend.api import Output
from backend.config import SECOND
from backend.engine import Events
from backend.steps import StepLog, StepShape
from policies.api import Time

Span = tuple[Time, Time]


class Meter:
    """Writes the step log.

    Host work is exposed while the device is idle. How much of a commit the step beside it hid is known when that step
    is back, one commit later; what a plan cost beside earlier steps is known when it is committed itself.
    """

    def __init__(self, block_size: int) -> None:
        self.log = StepLog(block_size)
        self.plan_time: Time = 0
        self.decide_time: Time = 0
        self.commit_time: Time = 0
        self.decisions = 0
        self._device: deque[Span] = deque(maxlen=2)  # the last two steps that are known
        self._commit: Span | None = None  # the last one, until the next output tells how much of it was hidden

    def planned(self, span: Span) -> None:
        self.plan_time += span[1] - span[0]

    def decided(self, time: Time) -> None:
        self.decide_time += time
        self.decisions += 1

    def step(self, output: Output, shape: StepShape, plan: Span, committed: Time, kv_blocks: int, came: Events) -> None:
        """`kv_blocks` were allocated while it ran."""
        device = (output.started, output.ended)
        self._settle(device)
        exposed = _outside(plan, *self._device)
        self.log.step(shape, output, came, committed, plan[1] - plan[0], exposed, kv_blocks)
        self._device.append(device)

    def committed(self, span: Span) -> None:
        self.commit_time += span[1] - span[0]
        self._commit = span

    def finish(self) -> None:
        """There is no further step to hide anything."""
        self._settle()

    def timing(self) -> dict[str, float]:
        return {
            "plan_s": self.plan_time / SECOND,
            "decide_s": self.decide_time / SECOND,
            "commit_s": self.commit_time / SECOND,
            "decisions": float(self.decisions),
        }

    def _settle(self, *device: Span) -> None:
        if self._commit is not None:
            self.log.add_host(self._commit[1] - self._commit[0], _outside(self._commit, *device))
            self._commit = None


def _outside(span: Span, *busy: Span) -> Time:
    """How much of `span` lies in none of `busy`, which do not overlap."""
    return span[1] - span[0] - sum(max(0, min(span[1], end) - max(span[0], start)) for start, end in busy)
