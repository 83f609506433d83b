"""Counts of each tenant: who waits, who runs, and what was served."""

from __future__ import annotations

from policies.api import Served, Time


class Tenant:
    """Served output is a line in the number of the last committed batch: joining and leaving move it, tokens do not."""

    __slots__ = ("backlog_since", "decoding", "index", "output", "prompt", "running", "waiting")

    def __init__(self, index: int) -> None:
        self.index = index
        self.waiting = 0
        self.running = 0
        self.backlog_since: Time = -1
        self.prompt = 0
        self.output = 0
        self.decoding = 0

    def starts_decoding(self, batch: int) -> None:
        """A member's first token of a spell is committed with `batch`."""
        self.decoding += 1
        self.output += 1 - batch

    def stops_decoding(self, batch: int) -> None:
        """`batch` is the last committed one whose token is kept."""
        self.decoding -= 1
        self.output += batch

    def served(self, committed: int) -> Served:
        return Served(self.prompt, self.output + self.decoding * committed)
