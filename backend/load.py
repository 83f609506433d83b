"""Traffic replayed in real time: the same tables as a simulated run of it.

Requests are sent by an absolute schedule, so that lateness does not add up: planned and actual times are on the record
(`arrival`, `submitted`).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

from backend.api import Device, Sampling
from backend.config import SECOND, EngineConfig, picoseconds
from backend.errors import BadConfig, Refused
from backend.predicting import GuardedPredictor
from backend.request import Request
from backend.seeds import draw_seed, prompt_ids
from backend.serving import BOUNDLESS, AsyncEngine, Prompt
from backend.simulation import Progress, Run
from backend.streams import EngineFailed, Stream
from backend.traffic import NONE, Traffic
from policies.api import Policy, Time


def serve_traffic(
    traffic: Traffic,
    policy: Policy,
    device: Device,
    config: EngineConfig,
    *,
    predictor: GuardedPredictor | None = None,
    prediction_limit_s: float = 0.25,
    sampling: Sampling | None = None,
    seed: int = 0,
    horizon_s: float | None = None,
    progress: Progress | None = None,
) -> Run:
    """`simulate` in real time, on a device that tells it. Known output lengths are forced as EOS.

    A request whose prompt is no text gets random ids, of a stream derived from `seed`. Each draws with a seed of its
    own, derived from that of `sampling` (None: never the same twice). Where the queue is full a request is refused.
    Raises what the engine fails with. Not to be called from a coroutine: see `replay`.
    """
    return asyncio.run(
        replay(
            traffic,
            policy,
            device,
            config,
            predictor=predictor,
            prediction_limit_s=prediction_limit_s,
            sampling=sampling,
            seed=seed,
            horizon_s=horizon_s,
            progress=progress,
        )
    )


async def replay(
    traffic: Traffic,
    policy: Policy,
    device: Device,
    config: EngineConfig,
    *,
    predictor: GuardedPredictor | None = None,
    prediction_limit_s: float = 0.25,
    sampling: Sampling | None = None,
    seed: int = 0,
    horizon_s: float | None = None,
    progress: Progress | None = None,
) -> Run:
    """`serve_traffic` as a coroutine."""
    _check(traffic, device, horizon_s)
    known = bool((traffic.output_tokens != NONE).all())
    crowd = Crowd(traffic, sampling or Sampling(), seed, progress)
    engine = AsyncEngine(
        device,
        policy,
        config,
        predictor=predictor,
        prediction_limit_s=prediction_limit_s,
        when_full="refuse",
        tenants=traffic.tenants,
        seed=seed,
        truth=(lambda request: int(traffic.output_tokens[request.row])) if known else None,
        source=crowd,
    )
    with suppress(EngineFailed):
        async with engine:
            over = await crowd.visit(engine, device, horizon_s)
            ran = engine.clock() / SECOND
    if engine.pump.failure is not None:
        raise engine.pump.failure
    timing = {"run_s": ran, "requests_per_s": len(traffic) / ran, **engine.pump.meter.timing()}
    return Run(engine.records(traffic, None if over else picoseconds(horizon_s or 0, SECOND)), timing)


def _check(traffic: Traffic, device: Device, horizon_s: float | None) -> None:
    if len(traffic) == 0:
        raise BadConfig("the workload has no requests")
    if horizon_s is not None and not horizon_s > 0:
        raise BadConfig(f"backend.horizon_s: {horizon_s} is not > 0")
    if traffic.prompts is None and device.capabilities.vocabulary < 1:
        raise BadConfig(f"device {device.capabilities.name} takes no token ids, and the workload has no texts")


class Crowd:
    """All clients of a run, each a coroutine. They count tokens and do not read them: real clients are elsewhere."""

    def __init__(self, traffic: Traffic, sampling: Sampling, seed: int, progress: Progress | None) -> None:
        self.traffic = traffic
        self._sampling = sampling
        self._seed = seed
        self._progress = progress
        self._rows = iter(range(len(traffic)))
        self._sent = 0
        self._ended = 0
        self._preparing = 0  # requests that are due to be sent, and not in the queue yet
        self._timers: set[asyncio.TimerHandle] = set()  # of those who will leave

    async def visit(self, engine: AsyncEngine, device: Device, horizon_s: float | None) -> bool:
        """Until everybody has left; False: the horizon cut it off."""
        self._engine, self._device = engine, device
        self._loop = asyncio.get_running_loop()
        clients = asyncio.create_task(self._all())
        try:
            done, _ = await asyncio.wait({clients}, timeout=horizon_s)
            if done:
                clients.result()
            else:
                engine.pump.cut()
            return bool(done)
        except BaseExceptionGroup as group:
            raise _first(group) from None
        finally:
            clients.cancel()
            await asyncio.wait({clients})

    async def _all(self) -> None:
        async with asyncio.TaskGroup() as group:
            if self.traffic.concurrency is None:
                for row in self._rows:
                    arrival = int(self.traffic.arrival[row])
                    await self._until(arrival)
                    self._sent += 1
                    self._preparing += 1
                    group.create_task(self._request(row, arrival))
            else:
                for _ in range(self.traffic.concurrency):
                    group.create_task(self._client())

    async def _client(self) -> None:
        """Closed loop: the next request is due when the one before has ended."""
        free: Time = 0
        for row in self._rows:
            self._sent += 1
            self._preparing += 1
            arrival = max(free, int(self.traffic.arrival[row]))
            await self._until(arrival)
            free = await self._request(row, arrival)

    async def _request(self, row: int, arrival: Time) -> Time:
        """One request from its arrival to its end."""
        request, length = self._about(row, arrival), int(self.traffic.output_tokens[row])
        forced = None if length == NONE else length
        stream: Stream | None = None
        with suppress(Refused):
            stream = await self._engine.send(request, self._prompt(row), self._drawing(row), forced)
        self._preparing -= 1
        if stream is not None:
            await self._stay(row, arrival, stream)
        self._ended += 1
        if self._progress is not None:
            self._progress(self._ended, len(self.traffic))
        return self._engine.clock() if stream is None else stream.ended_at

    async def _stay(self, row: int, arrival: Time, stream: Stream) -> None:
        """Until it ends, or the client has enough, or no more time or patience."""
        traffic = self.traffic
        timers: list[asyncio.TimerHandle] = []
        if (after := int(traffic.cancel_after[row])) != NONE:
            timers.append(self._leave_at(arrival + after, stream, patient=True))
        if (patience := int(traffic.patience[row])) != NONE:
            timers.append(self._leave_at(arrival + patience, stream, patient=False))
        wanted = int(traffic.cancel_tokens[row])
        await stream.reach(BOUNDLESS if wanted == NONE else wanted)
        stream.cancel()
        for timer in timers:
            timer.cancel()
        self._timers.difference_update(timers)

    def _leave_at(self, time: Time, stream: Stream, patient: bool) -> asyncio.TimerHandle:
        """`patient`: even if it has got something."""

        def leave() -> None:
            self._timers.discard(timer)
            if patient or not stream.made:
                stream.cancel()

        timer = self._loop.call_later(self._engine.clock.until(time), leave)
        self._timers.add(timer)
        return timer

    async def _until(self, time: Time) -> None:
        while (left := self._engine.clock.until(time)) > 0:
            await asyncio.sleep(left)

    def _about(self, row: int, arrival: Time) -> Request:
        t = self.traffic
        tenant, limit, deadline = t.tenants[t.tenant[row]], int(t.max_tokens[row]), int(t.deadline[row])
        return Request(
            t.id(row),
            tenant.name,
            int(t.prompt_tokens[row]),
            None if limit == NONE else limit,
            arrival,
            row=row,
            user=str(t.user[row]),
            weight=tenant.weight,
            priority=int(t.priority[row]),
            deadline=None if deadline == NONE else deadline,
        )

    def _drawing(self, row: int) -> Sampling:
        seed = self._sampling.seed
        return self._sampling if seed is None else replace(self._sampling, seed=draw_seed(seed, row))

    def _prompt(self, row: int) -> Prompt:
        if self.traffic.prompts is not None:
            return self.traffic.prompts[row]
        return prompt_ids(self._seed, row, int(self.traffic.prompt_tokens[row]), self._device.capabilities.vocabulary)

    # -- what the engine asks

    def more_to_come(self) -> bool:
        if self._preparing:
            return True
        left, clients = self._sent < len(self.traffic), self.traffic.concurrency
        # a client sends its next request when the one before has ended, which one that waits may not
        return left and (clients is None or clients > self._engine.engine.waiting.size or bool(self._timers))

    def stirs(self) -> bool:
        return bool(self._timers) or self.more_to_come()


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
