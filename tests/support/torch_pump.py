"""A plain loop that drives the engine on a real device: what the serving driver does, without asyncio."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from backend.api import Device, Sampling, Work
from backend.config import EngineConfig
from backend.engine import Engine
from backend.request import Request
from policies.api import Policy
from policies.fcfs import FCFS


@dataclass
class Ask:
    """One request of a test."""

    prompt: Sequence[int]
    max_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    forced: int | None = None
    arrives: int = 0  # number of committed batches after which it is submitted


@dataclass
class Answer:
    ids: list[int] = field(default_factory=list)
    state: str = ""
    reason: str = ""


@dataclass
class Pump:
    device: Device
    overlap: bool = True
    policy: Policy = field(default_factory=FCFS)
    max_num_seqs: int = 8
    max_num_batched_tokens: int = 64
    chunked_prefill: bool = True
    batching: str = "continuous"
    planning: Callable[[Engine], None] = lambda engine: None  # called where a policy decides
    steps: int = 0
    preemptions: int = 0

    def run(self, asks: Sequence[Ask]) -> list[Answer]:
        can = self.device.capabilities
        config = EngineConfig(
            overlap=self.overlap,
            batching=self.batching,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            chunked_prefill=self.chunked_prefill,
            audit=True,
        )
        rng = np.random.default_rng(0)
        engine = Engine(self.policy, config, can.num_blocks, can.block_size, can.max_model_len, rng)
        answers = {str(i): Answer() for i in range(len(asks))}
        coming = deque(sorted(enumerate(asks), key=lambda pair: pair[1].arrives))
        open_tickets: deque[int] = deque()
        now = 0
        while True:
            now += 1
            while coming and (coming[0][1].arrives <= engine.committed or not (engine.live or open_tickets)):
                self._submit(engine, *coming.popleft(), now)
            dispatched = False
            if len(open_tickets) < 1 + self.overlap:
                engine.begin(now, bool(coming))
                self.planning(engine)
                batch = engine.apply(self.policy.decide(engine.view) if engine.asks() else None)
                self._drain(engine, answers)
                if batch is not None:
                    open_tickets.append(self.device.submit(batch, now))
                    dispatched = True
            if open_tickets and (not dispatched or len(open_tickets) == 1 + self.overlap):
                output = self.device.wait(open_tickets.popleft())
                assert output.started <= output.ended
                for request_id, token in (output.token_ids or {}).items():
                    if request_id in engine.live and not engine.live[request_id].state:
                        answers[request_id].ids.append(token)
                engine.commit(output, now)
                self.steps += 1
                self._drain(engine, answers)
            elif not dispatched and not coming:
                assert not engine.live, f"nothing runs and {list(engine.live)} live"
                assert engine.pool.allocated == 0
                return [answers[str(i)] for i in range(len(asks))]

    def _submit(self, engine: Engine, number: int, ask: Ask, now: int) -> None:
        name = str(number)
        self.device.open(Work(name, len(ask.prompt), list(ask.prompt), ask.forced, ask.sampling))
        engine.submit(Request(name, "t", len(ask.prompt), ask.max_tokens, now), now)

    def _drain(self, engine: Engine, answers: dict[str, Answer]) -> None:
        over, gone = engine.over, engine.gone
        engine.over, engine.gone = [], []
        for request in over:
            answers[request.id].state, answers[request.id].reason = request.state, request.finish_reason
            self.preemptions += request.preemptions
        for request in gone:
            self.device.close(request.id)


def once_dispatched(step: int, name: str, act: Callable[[Engine, Request], object]) -> Callable[[Engine], None]:
    """Do `act` to a running request right after batch number `step` was dispatched."""

    def planning(engine: Engine) -> None:
        request = engine.live.get(name)
        if engine.dispatched == step and request is not None and request in set(engine.members):
            act(engine, request)

    return planning
