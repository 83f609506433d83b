"""The engine as a server on asyncio: requests come from coroutines, tokens go out as streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from operator import index
from types import TracebackType
from typing import Literal, Protocol, TypedDict, Unpack

from backend.api import Device, Sampling, Work
from backend.clock import Clock
from backend.config import SECOND, EngineConfig, picoseconds
from backend.door import Door
from backend.engine import Engine
from backend.errors import BadConfig, DuplicateId, Refused
from backend.predicting import GuardedPredictor, PredictionDesk
from backend.pump import Pump
from backend.records import Records
from backend.request import Request
from backend.run_records import assemble
from backend.seeds import policy_rng
from backend.streams import Cancelled, Piece, Stream
from backend.traffic import Tenant, Traffic
from backend.visitors import Visitors
from policies.api import Policy, Time

Prompt = str | Sequence[int]
BOUNDLESS = 1 << 62


class Closed(Exception):
    """The engine takes no further requests."""


class Settings(TypedDict, total=False):
    """Of one request."""

    sampling: Sampling
    request_id: str
    tenant: str
    user: int
    priority: int
    deadline_s: float  # from now
    forced_output_tokens: int  # end by EOS with this token (replay of a trace)


class Source(Protocol):
    """Where the requests of a run come from, so that the engine knows when nobody can come any more."""

    def more_to_come(self) -> bool:
        """Whether a further arrival is possible, even if nobody waiting is admitted."""

    def stirs(self) -> bool:
        """Whether anything may still happen by itself: an arrival, or a client that leaves."""


@dataclass(slots=True)
class Visit:
    stream: Stream
    text: str | None


class AsyncEngine:
    """A server for as long as the block lasts; what is open at its end is cancelled::

        async with AsyncEngine(device, policy, config) as engine:
            async for piece in engine.generate("What is a token?", max_tokens=50):
                print(piece.text, end="")

    The device is the caller's, and can serve another engine afterwards. Times count from the beginning of the block.
    """

    def __init__(
        self,
        device: Device,
        policy: Policy,
        config: EngineConfig,
        *,
        predictor: GuardedPredictor | None = None,
        prediction_limit_s: float = 0.25,
        when_full: Literal["wait", "refuse"] = "wait",
        tenants: Sequence[Tenant] = (),
        seed: int = 0,
        truth: Callable[[Request], int] | None = None,
        source: Source | None = None,
    ) -> None:
        """`when_full`: with ``config.max_waiting`` in the queue, a new request waits outside or is refused.

        Tenants that are not named have weight 1. `truth`: the true length of a request, for policies and predictors
        that declare the oracle. Raises BadConfig.
        """
        name = type(policy).__name__
        if "prediction" in policy.needs and predictor is None:
            raise BadConfig(f"policy {name} needs predictions; name a predictor")
        if "oracle" in policy.needs and truth is None:
            raise BadConfig(f"policy {name} needs the true lengths, and nobody knows them here")
        if not prediction_limit_s > 0:
            raise BadConfig(f"prediction.limit_s: {prediction_limit_s} is not > 0")
        can = device.capabilities
        size = (can.num_blocks, can.block_size, can.max_model_len)
        known = truth if "oracle" in policy.needs else None
        config.check()
        self._max_waiting = config.max_waiting if when_full == "wait" else None
        if when_full == "wait":
            # the door sees to it; whom it has called in is not refused because a preempted one came back meanwhile
            config = replace(config, max_waiting=None)
        self.engine = Engine(policy, config, *size, policy_rng(seed), known)
        self._device = device
        self._predictor = predictor
        self._limit_s = prediction_limit_s
        self._truth = truth
        self._source = source
        self._visitors = Visitors(tenants)
        self._visits: dict[str, Visit] = {}
        self._door = Door(self._room)
        self._called = 0
        self._coming: dict[str, bool] = {}  # called, and not in the queue yet; whether cancelled since
        self._closing = False

    # -- its life

    async def __aenter__(self) -> AsyncEngine:
        self.clock = Clock()
        self.pump = Pump(self.engine, self._device, self.clock, self)
        self._desk: PredictionDesk | None = None
        if self._predictor is not None:
            hears, fails = self.pump.predict, self.pump.fail
            self._desk = PredictionDesk(self._predictor, self._limit_s, self._truth, hears, fails)
        self._tokenizing = ThreadPoolExecutor(1, thread_name_prefix="batchyard-text")
        self._running = asyncio.create_task(self.pump.run(), name="batchyard-pump")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, drain: bool = False) -> None:
        """Take no more requests, cancel what is open or, to `drain`, let it end; then wait for the device.

        One that is cut short, by a time limit say, may be called again.
        """
        self._closing = True
        self._door.shut(Closed("the engine closes"))
        if not drain:
            for request_id in list(self._visits):
                self.pump.cancel(request_id)
        self.pump.stop()
        await asyncio.shield(self._running)
        self._tokenizing.shutdown(wait=False)
        if self._desk is not None:
            await self._desk.close()

    def records(self, traffic: Traffic | None = None, end: Time | None = None) -> Records:
        """Of the whole run, after `close`; once, since the tables are handed over.

        `traffic`: the one that the rows of the requests belong to. `end`: of a run that was cut off.
        """
        rows = self._visitors.traffic() if traffic is None else traffic
        kind = self._device.capabilities.kind
        return assemble(rows, self.engine, self.pump.meter.log, self.pump.holds, kind, end)

    # -- requests

    async def generate(
        self, prompt: Prompt, max_tokens: int | None = None, **settings: Unpack[Settings]
    ) -> AsyncGenerator[Piece, None]:
        """The pieces of one answer, in order; the request is submitted when the first is asked for.

        It is cancelled when the iterator is closed: by ``aclose()``, a ``break``, a cancelled task or a timeout.
        Raises what `submit` and `Stream` raise.
        """
        stream = await self.submit(prompt, max_tokens, **settings)
        try:
            async for piece in stream:
                yield piece
        finally:
            stream.cancel()

    async def submit(self, prompt: Prompt, max_tokens: int | None = None, **settings: Unpack[Settings]) -> Stream:
        """Put a request in the queue; it goes on until it ends or `Stream.cancel`.

        Raises DuplicateId while a request with this id is live or on its way to the queue, Refused if it cannot run
        or the queue is full, Cancelled if `cancel` came before it was in the queue, TypeError or ValueError for what
        is no request at all or a text without a tokenizer, Closed, and EngineFailed.
        """
        tenant = self._visitors.tenant(settings.get("tenant", "default"))
        arrival = self.clock()
        self._called += 1
        wanted = settings.get("deadline_s")
        request = Request(
            settings.get("request_id", f"request-{self._called}"),
            tenant.name,
            0,
            max_tokens,
            arrival,
            user=str(settings.get("user", 0)),
            weight=tenant.weight,
            priority=settings.get("priority", 0),
            deadline=None if wanted is None else arrival + picoseconds(wanted, SECOND),
        )
        sampling = settings.get("sampling") or Sampling()
        return await self.send(request, prompt, sampling, settings.get("forced_output_tokens"))

    async def send(self, request: Request, prompt: Prompt, sampling: Sampling, forced: int | None) -> Stream:
        """What `submit` does with a request that is there but for its number of tokens.

        One who leaves before it is in the queue was never there.
        """
        self._check_open()
        if request.id in self._coming:
            raise DuplicateId(f"request {request.id}: an earlier one with this id is on its way to the queue")
        self._coming[request.id] = False
        try:
            ids = await self._ids(prompt)
            self._check_wanted(request.id)
            await self._door.enter(request.id)
            self._check_wanted(request.id)
            request.prompt_tokens = len(ids)
            return self._enter(request, Work(request.id, len(ids), ids, forced, sampling), prompt)
        finally:
            del self._coming[request.id]
            self._door.open()  # whoever was called in and is turned away leaves the place to the next

    def cancel(self, request_id: str) -> None:
        """End a request, whoever reads it; of an unknown or ended one, a no-op.

        One that is on its way to the queue is told at once if it waits outside, else when its text is tokenized.
        """
        if request_id in self._coming:
            self._coming[request_id] = True
            self._door.turn_away(request_id, self._cancelled(request_id))
        self.pump.cancel(request_id)

    def _enter(self, request: Request, work: Work, prompt: Prompt) -> Stream:
        if request.id in self.engine.live:
            raise DuplicateId(f"request {request.id}: an earlier one with this id has not ended")
        if request.row < 0:
            request.row = self._visitors.add(request, work.forced_output_tokens)
        stream = Stream(request.id, self._device.decoder(work.sampling), self._leave)
        self._visits[request.id] = Visit(stream, prompt if isinstance(prompt, str) else None)
        try:
            self.pump.submit(request, work)
        except Exception:
            self._visits.pop(request.id, None)
            raise
        if self._desk is not None:
            self._desk.ask(request, self._visits[request.id].text, 0)
        return stream

    def _leave(self, stream: Stream) -> None:
        if not stream.state:  # else its id may be another's
            self.pump.cancel(stream.id)

    def _check_open(self) -> None:
        if self.pump.failure is not None:
            raise self.pump.failed()
        if self._closing:
            raise Closed("the engine closes")

    def _check_wanted(self, request_id: str) -> None:
        self._check_open()
        if self._coming[request_id]:
            raise self._cancelled(request_id)

    def _cancelled(self, request_id: str) -> Cancelled:
        return Cancelled(f"request {request_id} is cancelled")

    async def _ids(self, prompt: Prompt) -> Sequence[int]:
        """Tokenizing is done in a thread; it counts as waiting."""
        if isinstance(prompt, str):
            return await asyncio.get_running_loop().run_in_executor(self._tokenizing, self._encode, prompt)
        return [index(token) for token in prompt]

    def _encode(self, text: str) -> Sequence[int]:
        """Nothing for those who are told next that the engine has closed."""
        return () if self._closing else self._device.encode(text)

    def _room(self) -> int:
        if self._max_waiting is None or self.pump.failure is not None:
            return BOUNDLESS  # after a failure all come in, to be told of it
        return self._max_waiting - self.engine.waiting.size

    # -- what the pump tells and asks

    def made(self, request_id: str, token: int) -> None:
        self._visits[request_id].stream.push(token)

    def ended(self, request: Request) -> None:
        visit = self._visits.pop(request.id, None)
        if visit is None:
            return
        state = request.state or "failed"  # of an engine that broke before it could say so
        visit.stream.end(state, request.finish_reason, self.clock(), self._error(request))

    def _error(self, request: Request) -> Exception | None:
        if request.state == "completed":
            return None
        if self.pump.failure is not None:
            return self.pump.failed()
        if request.state in ("rejected", "failed"):
            return Refused(f"request {request.id}: {request.detail}")
        return Cancelled(f"request {request.id} is {request.state}")

    def outran(self, request: Request) -> None:
        if self._desk is not None and request.id in self._visits:
            self._desk.ask(request, self._visits[request.id].text, request.outputs(self.engine.committed))

    def moved(self) -> None:
        self._door.open()

    def more_to_come(self) -> bool:
        if self._coming:
            return True
        return not self._closing if self._source is None else self._source.more_to_come()

    def stirs(self) -> bool:
        if self._coming:
            return True
        return not self._closing if self._source is None else self._source.stirs()
