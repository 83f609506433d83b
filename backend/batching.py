"""When may new members join: at every step, or only as one batch that runs until its longest member ends?"""

from __future__ import annotations

from abc import ABC, abstractmethod

from backend.config import SECOND, EngineConfig, picoseconds
from backend.waiting import WaitingQueue
from policies.api import Time


class Batching(ABC):
    """A closed batch takes members from one decision only, and its ended members' slots cost a token a step."""

    closed: bool = True

    @abstractmethod
    def ready(self, waiting: WaitingQueue, now: Time, more_to_come: bool) -> bool:
        """Whether the policy may be asked, nobody being in the batch."""

    def due(self, waiting: WaitingQueue) -> Time | None:
        """When `ready` turns true by itself."""
        return None


class Continuous(Batching):
    closed = False

    def ready(self, waiting: WaitingQueue, now: Time, more_to_come: bool) -> bool:
        return True


class Static(Batching):
    """Orca's baseline: wait for a full batch, or until nobody can come any more."""

    def __init__(self, size: int) -> None:
        self.size = size

    def ready(self, waiting: WaitingQueue, now: Time, more_to_come: bool) -> bool:
        return waiting.size >= self.size or not more_to_come


class Dynamic(Batching):
    """Wait for a full batch, or until the oldest has waited `timeout`."""

    def __init__(self, size: int, timeout: Time) -> None:
        self.size = size
        self.timeout = timeout

    def ready(self, waiting: WaitingQueue, now: Time, more_to_come: bool) -> bool:
        due = self.due(waiting)
        return waiting.size >= self.size or (due is not None and now >= due)

    def due(self, waiting: WaitingQueue) -> Time | None:
        oldest = waiting.oldest()
        return None if oldest is None else oldest.arrival + self.timeout


def make_batching(config: EngineConfig) -> Batching:
    if config.batching == "static":
        return Static(config.max_num_seqs)
    if config.batching == "dynamic":
        return Dynamic(config.max_num_seqs, picoseconds(config.batch_timeout_s, SECOND))
    return Continuous()
