"""The step loop in real time: plan, dispatch, wait, commit, in the order that `backend.simulation` has in virtual time.

Everything but `device.wait` happens on the event loop's thread: engine, policy and streams need no locks, and what a
client does takes effect at once. Only the wait blocks, and it has a thread. The way there and back was measured at
0.1 ms a step (one request, sync, on a busy machine with two cores), which overlap hides; an engine in a thread of its
own would save that and need a queue each way for every arrival, cancel and token.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from backend.api import Batch, Device, DeviceFailed, Output, Work
from backend.clock import Clock
from backend.engine import Engine
from backend.errors import DuplicateId, EngineBroken, Refused
from backend.line import Line, Outcome
from backend.meter import Meter, Span
from backend.request import Phase, Request
from backend.steps import StepShape
from backend.streams import EngineFailed
from policies.api import PolicyStalled
from predictors.api import Prediction

logger = logging.getLogger(__name__)


class Listener(Protocol):
    """Who is told what comes of the steps, and knows what may come from outside."""

    def made(self, request_id: str, token: int) -> None:
        """A token is handed over."""

    def ended(self, request: Request) -> None:
        """Its terminal state is reached."""

    def outran(self, request: Request) -> None:
        """It has made more tokens than predicted."""

    def moved(self) -> None:
        """Requests have left the queue, or ended."""

    def more_to_come(self) -> bool:
        """Whether a further arrival is possible, even if nobody waiting is admitted."""

    def stirs(self) -> bool:
        """Whether anything may still happen from outside: an arrival, or a client that leaves."""


@dataclass(slots=True)
class Flying:
    """A batch on the device."""

    output: asyncio.Future[Outcome]
    shape: StepShape
    plan: Span


class Pump:
    def __init__(self, engine: Engine, device: Device, clock: Clock, listener: Listener) -> None:
        self.engine = engine
        self.clock = clock
        self.meter = Meter(device.capabilities.block_size)
        self.holds: list[Span] = []
        self.failure: Exception | None = None
        self._listener = listener
        self._depth = 2 if engine.config.overlap else 1
        self._flying: deque[Flying] = deque()
        self._wake = asyncio.Event()
        self._readers_first = False
        self._stopping = False
        self._cut = False
        self._loop = asyncio.get_running_loop()
        self.line = Line(device, clock, self._wake.set)

    # -- from outside

    def submit(self, request: Request, work: Work) -> None:
        """Raises DuplicateId, Refused, and EngineFailed."""
        with self._core():
            self.engine.submit(request, self.clock())
            try:
                self.line.open(work)
            except (TypeError, ValueError) as error:
                self.engine.end(request, "failed", "failed", str(error))
                self._tell()
                raise Refused(str(error)) from error
        self._wake.set()

    def cancel(self, request_id: str) -> None:
        """Of an unknown or ended request, a no-op."""
        with suppress(EngineFailed), self._core():
            self.engine.cancel(request_id, self.clock())
            self._tell()
        self._wake.set()

    def predict(self, request: Request, prediction: Prediction) -> None:
        with suppress(EngineFailed), self._core():
            self.engine.predict(request, prediction, self.clock())
        self._wake.set()

    def stop(self) -> None:
        """Go on until nobody is left."""
        self._stopping = True
        self._wake.set()

    def cut(self) -> None:
        """Stop here: whatever is live stays unfinished."""
        self._give_up(None)

    def fail(self, cause: Exception) -> None:
        """Nothing can go on; everybody is told the cause."""
        if self.failure is None:
            self.failure = cause
            self._give_up(f"{type(cause).__name__}: {cause}")

    def failed(self) -> EngineFailed:
        """One exception for each who is told."""
        error = EngineFailed(f"the engine has failed: {type(self.failure).__name__}: {self.failure}")
        error.__cause__ = self.failure
        return error

    @contextmanager
    def _core(self) -> Iterator[None]:
        """What the engine or a policy raises may leave half a change behind: it ends the run."""
        if self.failure is not None:
            raise self.failed()
        try:
            yield
        except (DuplicateId, Refused):
            raise
        except Exception as error:
            self.fail(error)
            raise self.failed() from error

    # -- the loop

    async def run(self) -> None:
        """Until everybody has left after `stop`, or `cut`, or a failure."""
        try:
            while not self._cut and not (self._stopping and not self.engine.live and not self._flying):
                await self._turn()
        except Exception as error:
            self.fail(error)
        finally:
            self.line.hang_up()
        await self._finish()

    async def _turn(self) -> None:
        if len(self._flying) < self._depth and self.engine.live and self._plan():
            return
        if self._readers_first:
            # one who leaves at this token is not to be given the next
            self._readers_first = False
            await asyncio.sleep(0)
        elif self._flying and self._flying[0].output.done():
            self._commit(self._flying.popleft())
        else:
            await self._idle()

    def _plan(self) -> bool:
        """Plan a batch and dispatch it; False where there is nothing to run."""
        engine, began = self.engine, self.clock()
        if not self._flying:
            self.meter.log.idle_until(began)
        engine.begin(began, self._listener.more_to_come())
        decision = None
        if engine.asks():
            asked = self.clock()
            decision = engine.policy.decide(engine.view)
            self.meter.decided(self.clock() - asked)
        batch = engine.apply(decision)
        self._tell()
        if batch is not None:
            shape = self._shape(batch, began)
            output = self.line.dispatch(batch)
            self._flying.append(Flying(output, shape, (began, self.clock())))
            self._listener.moved()
        self.meter.planned((began, self.clock()))
        if batch is None and decision is not None and engine.asking.changed and not self._flying:
            return True  # it has preempted or rejected: what follows from that is planned at once
        return batch is not None

    def _commit(self, flying: Flying) -> None:
        began = self.clock()
        engine, meter = self.engine, self.meter
        output = self.line.result(flying.output, engine.committed + 1)
        tokens = self._tokens(output)
        allocated = engine.pool.allocated
        events = engine.commit(output, began)
        for request_id, token in tokens:
            self._listener.made(request_id, token)
        meter.step(output, flying.shape, flying.plan, began, allocated, events)
        meter.log.holds(engine.members.kv_tokens, engine.pool.allocated)
        if events.outran:
            meter.log.close()
            for request in events.outran:
                self._listener.outran(request)
        self._tell()
        self._readers_first = True
        meter.committed((began, self.clock()))

    def _tokens(self, output: Output) -> list[tuple[str, int]]:
        """Of those who have not ended before this commit."""
        live = self.engine.live
        return [
            (request_id, token)
            for request_id, token in (output.token_ids or {}).items()
            if (request := live.get(request_id)) is not None and request.phase != Phase.DONE
        ]

    async def _idle(self) -> None:
        """Sleep until something happens: a batch is back, somebody comes or goes, or a hold comes due."""
        engine = self.engine
        self._wake.clear()
        due = engine.wake_at() if len(self._flying) < self._depth else None
        holds = not self._flying and engine.waiting.size > 0
        if holds and due is None and not self._listener.stirs():
            raise PolicyStalled(
                f"{engine.policy_name} admits nobody: {engine.waiting.size} requests wait, nothing runs, "
                "nothing more will arrive, and it set neither hold_until nor revisit_at ahead"
            )
        since = self.clock()
        timer = None if due is None else self._loop.call_later(self.clock.until(due), self._wake.set)
        await self._wake.wait()
        if timer is not None:
            timer.cancel()
        if holds:
            self.holds.append((since, self.clock()))

    def _tell(self) -> None:
        """Tell clients and device who has ended."""
        engine = self.engine
        if not (engine.over or engine.gone):
            return
        over, gone = engine.over, engine.gone
        engine.over, engine.gone = [], []
        for request in gone:
            self.line.close(request.id)
        for request in over:
            self._listener.ended(request)
        self.meter.log.close()
        self.meter.log.holds(engine.members.kv_tokens, engine.pool.allocated)
        self._listener.moved()

    def _shape(self, batch: Batch, planned: int) -> StepShape:
        engine = self.engine
        return StepShape(
            engine.members.flights[-1].version,
            engine.decisions,
            planned,
            len(batch.decodes),
            len(batch.chunks),
            sum(chunk.count for chunk in batch.chunks),
            batch.padding,
            engine.waiting.size,
            engine.num_running,
        )

    # -- the end

    def _give_up(self, failure: str | None) -> None:
        self._cut = True
        engine = self.engine
        untold = [*engine.over, *(request for request in engine.live.values() if request.phase != Phase.DONE)]
        engine.over, engine.gone = [], []
        try:
            engine.abandon(self.clock(), failure)
        except Exception:
            logger.exception("the engine's state is broken, and the records with it")
        for request in untold:
            self._listener.ended(request)
        self._listener.moved()
        self._wake.set()

    async def _finish(self) -> None:
        self.meter.finish()
        if isinstance(self.failure, DeviceFailed):
            return  # it may hang, and it knows nobody any more
        await asyncio.gather(*(flying.output for flying in self._flying), return_exceptions=True)
        self.line.close_all()
        if not self._cut and self.engine.pool.allocated:
            self.fail(EngineBroken(f"nobody is left, and {self.engine.pool.allocated} KV blocks are allocated"))
