"""Small servers for tests: a GPU that sleeps, everything else stated in the call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from zlib import crc32

import pandas as pd

from backend.api import Output
from backend.config import EngineConfig
from backend.costs import ConstantCost
from backend.realtime import VOCABULARY, RealTimeDevice, made_up_token
from backend.serving import AsyncEngine
from policies.api import Policy
from policies.fcfs import FCFS

T = TypeVar("T")

MS = 10**9


def within(seconds: float, coroutine: Coroutine[Any, Any, T]) -> T:
    """Its result; fails if it takes longer, or leaves a task or a thread behind, a device's own apart."""

    async def alone() -> T:
        result = await asyncio.wait_for(coroutine, seconds)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks left over: {left}"
        return result

    before = set(threading.enumerate())
    result = asyncio.run(alone())
    for thread in set(threading.enumerate()) - before:
        if not thread.name.startswith("batchyard-realtime"):
            thread.join(5)
            assert not thread.is_alive(), f"{thread.name} is left over"
    return result


def in_one_of_three(check: Callable[[], None]) -> None:
    """For what is claimed of times: another process may spoil a run or two, a defect spoils all."""
    for attempt in range(3):
        try:
            check()
        except AssertionError:
            if attempt == 2:
                raise
        else:
            return


def device(step_ms: float = 10, *, blocks: int = 1000, block_size: int = 16, model_len: int = 4096) -> RealTimeDevice:
    return RealTimeDevice(ConstantCost(step_ms), num_blocks=blocks, block_size=block_size, max_model_len=model_len)


def server(on: RealTimeDevice, policy: Policy | None = None, **settings: Any) -> AsyncEngine:
    """Settings of AsyncEngine by their names, all others of EngineConfig; audited after every commit."""
    names = ("predictor", "prediction_limit_s", "when_full", "tenants", "seed", "truth", "source")
    serving = {name: settings.pop(name) for name in names if name in settings}
    return AsyncEngine(on, policy or FCFS(), EngineConfig(**({"audit": True} | settings)), **serving)


def prompt(request_id: str, length: int = 1) -> list[int]:
    """Another for each request."""
    return [crc32(request_id.encode()) % VOCABULARY] * length


def tokens(request_id: str, count: int) -> list[int]:
    """What the device makes of `prompt`, whatever its length."""
    return [made_up_token(prompt(request_id), index) for index in range(count)]


async def read(engine: AsyncEngine, request_id: str, count: int, **settings: Any) -> list[int]:
    """All tokens of a request of `count` tokens."""
    return [
        piece.token async for piece in engine.generate(prompt(request_id), count, request_id=request_id, **settings)
    ]


def row(requests: pd.DataFrame, request_id: str) -> Any:
    [found] = requests[requests["id"] == request_id].itertuples()
    return found


def ordered(requests: pd.DataFrame) -> bool:
    """arrival <= submitted <= scheduled <= first token <= last token <= end, of those that got so far."""
    for r in requests.itertuples():
        times = [r.arrival, r.submitted, r.scheduled, r.first_token, r.last_token, r.ended]
        happened = [time for time in times if time >= 0]
        if happened != sorted(happened):
            return False
    return True


class Dies(RealTimeDevice):
    """Fails in batch number `last`."""

    def __init__(self, last: int, error: Exception | None = None) -> None:
        super().__init__(ConstantCost(5), num_blocks=1000, max_model_len=4096)
        self.last = last
        self.error = error or RuntimeError("the fan has stopped")

    def _run(self, output: Output) -> Output:
        if output.number == self.last:
            raise self.error
        return super()._run(output)
