"""A device driven by hand, as an engine would drive it: for the device contract's tests."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from backend.api import Batch, Chunk, Device, Output, Sampling, Ticket, Work
from backend.clock import Clock
from policies.api import Time


@dataclass(eq=False)
class Guest:
    """A request: the device's `Member`, and what came of it."""

    id: str
    ids: Sequence[int]
    limit: int
    forced: int | None
    sampling: Sampling
    table: list[int]
    target: int  # tokens to prefill
    planned: int = 0
    anchor: int = 0  # batch of the last chunk
    base: int = 0  # tokens made before this spell
    tokens: list[int] = field(default_factory=list)
    """Token ids, where the device makes any."""
    stopped: int = 0
    """With which token the device said that it was the last; 0: never."""

    def position(self, batch: int) -> int:
        return self.target + batch - self.anchor - 1

    def made(self, batch: int) -> int:
        """Tokens by the end of `batch`."""
        return self.base + batch - self.anchor + 1 if 0 < self.anchor <= batch else self.base

    def over(self, batch: int) -> bool:
        """Whether nothing is to be planned behind `batch`."""
        return self.stopped > 0 or self.made(batch) >= self.limit


class Problem(Exception):
    """The device breaks the contract."""


class Rig:
    def __init__(self, device: Device) -> None:
        self.device = device
        self.can = device.capabilities
        self.clock = Clock()
        device.set_clock(self.clock)
        self.number = 0
        self.outputs: list[Output] = []
        self.submitted: Time = 0  # when `submit` returned
        self._tickets: deque[Ticket] = deque()
        self._blocks = deque(np.random.default_rng(0).permutation(self.can.num_blocks).tolist())
        self._guests: list[Guest] = []
        self._named = 0

    def guest(
        self, prompt: int, limit: int, *, forced: int | None = None, sampling: Sampling | None = None, seed: int = 0
    ) -> Guest:
        """A request of `prompt` tokens, the same for the same `seed`, opened on the device."""
        self._named += 1
        name = f"guest-{self._named}"
        ids = np.random.default_rng(seed).integers(max(1, self.can.vocabulary), size=prompt).tolist()
        guest = Guest(name, ids, limit, forced, sampling or Sampling(ignore_eos=True), [], target=prompt)
        self._give_blocks(guest)
        self._open(guest)
        self._guests.append(guest)
        return guest

    def stranger(self) -> Work:
        """A request whose prompt no model knows."""
        return Work("stranger", 2, [0, self.can.vocabulary], None, Sampling())

    def reopen(self, guest: Guest) -> None:
        """Before it was in any batch."""
        self.device.close(guest.id)
        self._open(guest)

    def leave(self, guest: Guest) -> None:
        self._guests.remove(guest)
        self._blocks.extend(guest.table)
        self.device.close(guest.id)

    def preempt(self, guest: Guest) -> None:
        """After the last batch: its blocks are gone, prompt and output so far are to be prefilled into others."""
        guest.base = guest.made(self.number)
        guest.target = len(guest.ids) + guest.base
        guest.planned = guest.anchor = 0
        old, guest.table = guest.table, []
        self._give_blocks(guest)
        self._blocks.extend(old)

    def plan(self, guests: Sequence[Guest], chunk: int | None = None, padding: int = 0) -> Batch:
        """The next batch: one token of each that decodes, at most `chunk` of each that is still prefilled."""
        self.number += 1
        decodes = {guest: None for guest in guests if guest.anchor}
        chunks = []
        context = sum(guest.position(self.number) + 1 for guest in decodes)
        for guest in guests:
            left = guest.target - guest.planned
            if left:
                count = left if chunk is None else min(chunk, left)
                chunks.append(Chunk(guest, guest.planned, count, count == left))
                guest.planned += count
                guest.anchor = self.number if count == left else 0
                context += guest.planned
        return Batch(self.number, decodes.keys(), chunks, padding, context)

    def submit(self, batch: Batch) -> None:
        ticket = self.device.submit(batch, self.clock())
        self.submitted = self.clock()
        self._tickets.append(ticket)

    def wait(self, guests: Sequence[Guest]) -> Output:
        """For the oldest batch."""
        output = self.device.wait(self._tickets.popleft())
        self.outputs.append(output)
        for guest in guests:
            if guest.id in output.stopped:
                if guest.stopped:
                    raise Problem(f"{guest.id} was stopped twice, with token {guest.stopped} and later")
                guest.stopped = guest.made(output.number)
            if output.token_ids is not None and guest.id in output.token_ids:
                guest.tokens.append(output.token_ids[guest.id])
        return output

    def step(self, guests: Sequence[Guest], chunk: int | None = None) -> Output:
        self.submit(self.plan(guests, chunk))
        return self.wait(guests)

    def play(
        self, guests: Sequence[Guest], *, overlap: bool = False, chunk: int | None = None, padding: int = 0
    ) -> None:
        """Steps until all of them are over."""
        while True:
            going = [guest for guest in guests if not guest.over(self.number)]
            if going:
                self.submit(self.plan(going, chunk, padding))
            if not self._tickets:
                return
            if not going or len(self._tickets) > overlap:
                self.wait(guests)

    def clear(self) -> None:
        """Wait for what is open, and let everybody leave."""
        while self._tickets:
            self.wait([])
        for guest in list(self._guests):
            self.leave(guest)

    def _give_blocks(self, guest: Guest) -> None:
        needed = -(-(len(guest.ids) + guest.limit) // self.can.block_size)
        if needed > len(self._blocks):
            raise Problem(f"its pool of {self.can.num_blocks} blocks is too small for the tests")
        guest.table = [self._blocks.popleft() for _ in range(needed)]

    def _open(self, guest: Guest) -> None:
        ids = guest.ids if self.can.vocabulary else None
        self.device.open(Work(guest.id, len(guest.ids), ids, guest.forced, guest.sampling))
