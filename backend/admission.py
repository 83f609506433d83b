"""Three answers to "is there room for one more?"

optimistic: blocks for what must be computed now, the rest block by block (and preemption when they run out).
reserve: blocks for the prompt and the reserved output at once.
peak: blocks as optimistic, but only if the reservations, followed to their ends, never need more than the pool.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

import numpy as np

from backend.blocks import blocks_for
from backend.request import Request


class Admission(ABC):
    uses_reservations = True

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size

    @abstractmethod
    def blocks(self, request: Request) -> int:
        """Blocks to take at admission; `request.target` and `request.reserved` are set."""

    def allows(self, request: Request, running: Iterable[Request], batch: int) -> bool:
        """Whether the rule, blocks free right now aside, lets `request` join `running` in batch number `batch`."""
        return True


class Optimistic(Admission):
    uses_reservations = False

    def blocks(self, request: Request) -> int:
        return blocks_for(request.target, self.block_size)


class Reserve(Admission):
    def blocks(self, request: Request) -> int:
        return blocks_for(max(request.target, final_tokens(request)), self.block_size)


class Peak(Optimistic):
    uses_reservations = True

    def allows(self, request: Request, running: Iterable[Request], batch: int) -> bool:
        """O(running²) of vector work: at each predicted end, what everybody still there holds."""
        members = [*running, request]
        now = np.array([m.position(batch) + 1 if m.anchor else m.target for m in members])  # once `batch` is done
        growth = np.maximum(np.array([final_tokens(m) for m in members]) - now, 0)
        ends = np.unique(growth)
        held = np.where(growth >= ends[:, None], -(-(now + ends[:, None]) // self.block_size), 0)
        return bool(held.sum(axis=1).max() <= self.num_blocks)


def final_tokens(request: Request) -> int:
    """KV tokens at the end, if the reservation holds: output token k needs KV of the prompt and k - 1 outputs."""
    return request.prompt_tokens + request.reserved - 1


def make_admission(name: str, num_blocks: int, block_size: int) -> Admission:
    kinds: dict[str, type[Admission]] = {"optimistic": Optimistic, "reserve": Reserve, "peak": Peak}
    return kinds[name](num_blocks, block_size)
