"""The engine as a step machine, driven by hand, on a device that keeps account of KV slots instead of time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from backend.api import Batch, Output, Ticket, Work
from backend.config import EngineConfig
from backend.costs import ConstantCost
from backend.engine import Engine, Events
from backend.request import Request
from backend.simulated import SimulatedDevice
from policies.api import Decision, EngineView, Policy, RequestView, Time
from policies.fcfs import FCFS
from traffic_by_hand import MS

Slot = tuple[int, int]  # block, offset


class MemoryDevice(SimulatedDevice):
    """Remembers which token of which request lies in each KV slot, and refuses a batch that would compute nonsense.

    A member must find all of its context in its own blocks, its input must be the token made last, and no block may
    belong to two requests of the batches in flight. So whatever passes makes the tokens that it makes alone.
    """

    def __init__(self, *, blocks: int, block_size: int, model_len: int, step_ms: float = 10) -> None:
        super().__init__(ConstantCost(step_ms), num_blocks=blocks, block_size=block_size, max_model_len=model_len)
        self.made: dict[str, int] = {}
        self.peak = 0
        """Most KV slots ever written for a request."""
        self._slots: dict[Slot, tuple[str, int]] = {}
        self._running: list[tuple[Time, dict[int, str]]] = []  # until when a batch runs, and who owns its blocks

    def open(self, work: Work) -> None:
        super().open(work)
        self.made[work.id] = 0

    def submit(self, batch: Batch, now: Time) -> Ticket:
        owners: dict[int, str] = {}
        for chunk in batch.chunks:
            self._compute(chunk.member.id, chunk.member.table, chunk.start, chunk.count, owners)
            if chunk.last:
                self._sample(chunk.member.id, chunk.start + chunk.count)
        for member in batch.decodes:
            position = member.position(batch.number)
            self._compute(member.id, member.table, position, 1, owners)
            self._sample(member.id, position + 1)
        self._running = [(until, others) for until, others in self._running if until > now]
        for _, others in self._running:
            shared = [block for block in owners if others.get(block, owners[block]) != owners[block]]
            assert not shared, f"batch {batch.number}: blocks {shared} are still in use by a batch in flight"
        ticket = super().submit(batch, now)
        self._running.append((self._free, owners))
        return ticket

    def horizon(self) -> int:
        return 0

    def _compute(self, name: str, table: Sequence[int], start: int, count: int, owners: dict[int, str]) -> None:
        size = self.capabilities.block_size
        for position in range(start, start + count):
            self._slots[table[position // size], position % size] = (name, position)
        for position in range(start + count):
            found = self._slots.get((table[position // size], position % size))
            assert found == (name, position), f"request {name}: KV of token {position} is missing, found {found}"
        for block in table:
            assert owners.setdefault(block, name) == name, f"block {block} is in two tables"
        self.peak = max(self.peak, start + count)

    def _sample(self, name: str, context: int) -> None:
        expected = self._work[name].prompt_tokens + self.made[name]
        assert context == expected, f"request {name}: token made from {context} tokens, {expected} are known"
        self.made[name] += 1


class Machine:
    """Nothing happens unless a test says so. Plan 3 ms, device 10 ms, commit 2 ms; audited after every commit."""

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        blocks: int = 100,
        block_size: int = 16,
        model_len: int = 4096,
        **config: Any,
    ) -> None:
        self.policy: Any = policy or FCFS()
        settings = EngineConfig(**({"audit": True, "overlap": False} | config))
        self.engine = Engine(self.policy, settings, blocks, block_size, model_len, np.random.default_rng(0))
        self.device = MemoryDevice(blocks=blocks, block_size=block_size, model_len=model_len)
        self.depth = 2 if settings.overlap else 1
        self.flying: deque[Output] = deque()
        self.now: Time = 0
        self.asked = 0
        self.ended: list[Request] = []
        self._count = 0

    def add(
        self, id: str = "", prompt: int = 4, output: int = 10, max_tokens: int | None = None, **given: Any
    ) -> Request:
        """A request that would say EOS with its token number `output`."""
        self._count += 1
        request = Request(id or str(self._count), given.pop("tenant", "t"), prompt, max_tokens, self.now, **given)
        self.engine.submit(request, self.now)
        self.device.open(Work(request.id, prompt, forced_output_tokens=output))
        return request

    def cancel(self, request: Request) -> None:
        self.engine.cancel(request.id, self.now)
        self.tell()

    def plan(self, more_to_come: bool = False) -> Batch | None:
        engine = self.engine
        engine.begin(self.now, more_to_come)
        decision = None
        if engine.asks():
            self.asked += 1
            decision = self.policy.decide(engine.view)
        batch = engine.apply(decision)
        self.tell()
        if batch is not None:
            self.now += 3 * MS
            self.flying.append(self.device.wait(self.device.submit(batch, self.now)))
        return batch

    def commit(self) -> Events:
        output = self.flying.popleft()
        self.now = max(self.now, output.ended) + 2 * MS
        events = self.engine.commit(output, self.now)
        self.tell()
        return events

    def step(self) -> Events | None:
        """As a driver does: plan as far ahead as the loop allows, then commit the oldest batch."""
        while len(self.flying) < self.depth and self.engine.live and self.plan():
            pass
        return self.commit() if self.flying else None

    def drain(self, most: int = 10_000) -> int:
        """Step until nobody is left; tokens handed over."""
        tokens = 0
        for _ in range(most):
            if not self.engine.live:
                return tokens
            events = self.step()
            assert events is not None, "requests are live and nothing runs"
            tokens += events.tokens
        raise AssertionError(f"requests are live after {most} steps")

    def tell(self) -> None:
        engine = self.engine
        for request in engine.gone:
            self.device.close(request.id)
        self.ended += engine.over
        engine.over, engine.gone = [], []


class Script(Policy):
    """Answers with what a test puts into `answer`; by default admits everybody in order."""

    def __init__(self, answer: Callable[[EngineView], Decision] | None = None, **attributes: Any) -> None:
        self.answer = answer or (lambda view: Decision(admit=view.waiting))
        self.log: list[str] = []
        for name, value in attributes.items():
            setattr(self, name, value)

    def decide(self, view: EngineView) -> Decision:
        return self.answer(view)

    def on_arrival(self, request: RequestView, view: EngineView) -> None:
        self.log.append(f"arrival {request.id}")

    def on_prediction(self, request: RequestView, view: EngineView) -> None:
        self.log.append(f"prediction {request.id}")

    def on_admit(self, request: RequestView, view: EngineView) -> None:
        self.log.append(f"admit {request.id}")

    def on_preempt(self, request: RequestView, view: EngineView) -> None:
        self.log.append(f"preempt {request.id}")

    def on_finish(self, request: RequestView, reason: str, view: EngineView) -> None:
        self.log.append(f"{reason} {request.id}")
