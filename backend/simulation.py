"""The simulated driver: a plain event loop over virtual time, with a host and a device timeline."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

from backend.api import Batch, Device, Output, Work
from backend.clients import NEVER, Clients
from backend.config import MICROSECOND, MILLISECOND, SECOND, EngineConfig, HostTimes, picoseconds
from backend.engine import Engine
from backend.errors import BadConfig
from backend.quiet import horizon, quiet_batch, skip, skipped_to
from backend.records import Records
from backend.request import Request
from backend.run_records import assemble
from backend.seeds import policy_rng
from backend.steps import StepLog, StepShape
from backend.traffic import NONE, Traffic
from policies.api import Policy, PolicyStalled, Time
from predictors.api import Predictor

SHORTEST_JUMP = 3
"""Fewer quiet steps than this are quicker to step."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Run:
    records: Records
    timing: dict[str, float]
    """Wall-clock seconds of this process: apart from the records, which are reproducible."""


@dataclass(slots=True)
class Flying:
    """A batch on the device, and what its step has cost the host so far."""

    output: Output  # in virtual time it is known at once
    shape: StepShape
    host: Time
    exposed: Time


@dataclass(slots=True)
class Timeline:
    """Steps of a jump: one entry a dispatched batch, and a commit for each."""

    starts: list[Time] = field(default_factory=list)
    ends: list[Time] = field(default_factory=list)
    commits: list[Time] = field(default_factory=list)
    exposed_plans: list[Time] = field(default_factory=list)
    exposed_commits: Time = 0


class Host:
    """Virtual time that planning and committing a batch takes."""

    def __init__(self, times: HostTimes) -> None:
        times.check()
        self._plan = picoseconds(times.plan_ms, MILLISECOND), picoseconds(times.plan_per_seq_us, MICROSECOND)
        self._commit = picoseconds(times.commit_ms, MILLISECOND), picoseconds(times.commit_per_seq_us, MICROSECOND)

    def plan(self, shape: StepShape) -> Time:
        return self._plan[0] + self._plan[1] * (shape.decodes + shape.chunks)

    def commit(self, shape: StepShape) -> Time:
        return self._commit[0] + self._commit[1] * (shape.decodes + shape.chunks)


def simulate(
    traffic: Traffic,
    policy: Policy,
    device: Device,
    config: EngineConfig,
    *,
    host: HostTimes,
    predictor: Predictor | None = None,
    predictor_latency_s: float = 0.0,
    seed: int = 0,
    horizon_s: float | None = None,
    jump: bool = True,
    progress: Progress | None = None,
) -> Run:
    """Run `traffic` through `policy` on a device that tells virtual time.

    `predictor` answers `predictor_latency_s` after arrival (configured, never measured). The run drains, unless
    `horizon_s` cuts it off. `jump` changes speed only.
    """
    if "prediction" in policy.needs and predictor is None:
        raise BadConfig(f"policy {type(policy).__name__} needs predictions; name a predictor")
    if len(traffic) == 0:
        raise BadConfig("the workload has no requests")
    if traffic.ids is not None and len(set(traffic.ids)) < len(traffic):
        [(twice, _)] = Counter(traffic.ids).most_common(1)
        raise BadConfig(f"the workload's id {twice!r} is there twice; ids have to differ")
    if not (predictor_latency_s >= 0):
        raise BadConfig(f"prediction.latency_s: {predictor_latency_s} is not >= 0")
    if horizon_s is not None and not horizon_s > 0:
        raise BadConfig(f"backend.horizon_s: {horizon_s} is not > 0")
    return Simulation(
        traffic, policy, device, config, host, predictor, predictor_latency_s, seed, horizon_s, jump, progress
    ).run()


class Simulation:
    def __init__(
        self,
        traffic: Traffic,
        policy: Policy,
        device: Device,
        config: EngineConfig,
        host: HostTimes,
        predictor: Predictor | None,
        predictor_latency_s: float,
        seed: int,
        horizon_s: float | None,
        jump: bool,
        progress: Progress | None,
    ) -> None:
        self.traffic = traffic
        self.policy = policy
        self.device = device
        self.costs = Host(host)
        self.depth = 2 if config.overlap else 1
        able = device.capabilities
        self.engine = Engine(
            policy,
            config,
            able.num_blocks,
            able.block_size,
            able.max_model_len,
            policy_rng(seed),
            truth=self._truth if "oracle" in policy.needs else None,
        )
        self.clients = Clients(traffic, self.engine, self._open, predictor, predictor_latency_s)
        self.log = StepLog(able.block_size)
        self.horizon = NEVER if horizon_s is None else picoseconds(horizon_s, SECOND)
        self.jump = jump
        self.progress = progress
        self.flying: deque[Flying] = deque()
        self.now: Time = 0  # when the host is free
        self.device_free: Time = 0
        self.holds: list[tuple[Time, Time]] = []
        self.plan_s = self.decide_s = self.commit_s = 0.0  # wall clock

    def run(self) -> Run:
        began = perf_counter()
        while self._turn():
            pass
        cut = self.horizon < NEVER and bool(self.engine.live or self.clients.due < NEVER)
        if cut:
            self.engine.abandon(self.now)
        ran = perf_counter() - began
        end = self.horizon if cut else None
        records = assemble(self.traffic, self.engine, self.log, self.holds, self.device.capabilities.kind, end)
        timing = {
            "run_s": ran,
            "requests_per_s": len(self.traffic) / max(ran, 1e-9),
            "plan_s": self.plan_s,
            "decide_s": self.decide_s,
            "commit_s": self.commit_s,
            "decisions": float(self.engine.decisions),
        }
        return Run(records, timing)

    def _open(self, row: int, request: Request) -> None:
        length = int(self.traffic.output_tokens[row])
        if length == NONE:
            raise BadConfig(f"request {request.id} has no output length; a simulated device cannot make one up")
        self.device.open(Work(request.id, request.prompt_tokens, forced_output_tokens=length))

    def _truth(self, request: Request) -> int:
        return int(self.traffic.output_tokens[request.row])

    def _turn(self) -> bool:
        """One thing that the host does: plan, commit, or wait for an event. False: all is over."""
        engine, clients, in_flight = self.engine, self.clients, self.flying
        if clients.due <= self.now:
            clients.deliver(self.now)
        if engine.over or engine.gone:
            self._tell()
        if self.now >= self.horizon:
            return False
        planned = len(in_flight) < self.depth and bool(engine.live) and self._plan()
        if planned and (len(in_flight) < self.depth or clients.due <= self.now or self.now >= self.horizon):
            return True
        event = self._next_event()
        if in_flight:
            oldest = in_flight[0]
            ready = max(self.now, oldest.output.ended)
            done = ready + self.costs.commit(oldest.shape)
            if event <= ready:
                self.now = event
            elif done > self.horizon:
                self.now = self.horizon
            else:
                self._commit(ready, done)
                soonest = done + SHORTEST_JUMP * (oldest.output.ended - oldest.output.started)
                if self.jump and clients.due > soonest and len(in_flight) == self.depth - 1:
                    self._jump()
            return True
        if event == NEVER:
            if self.engine.waiting.size:
                raise PolicyStalled(
                    f"{self.engine.policy_name} admits nobody: {self.engine.waiting.size} requests wait, nothing runs, "
                    "nothing more will arrive, and it set neither hold_until nor revisit_at ahead"
                )
            return False
        if self.engine.waiting.size:
            self.holds.append((self.now, event))
        self.now = event
        return True

    def _next_event(self) -> Time:
        """The next thing after now that is not a commit; the horizon at the latest."""
        event = self.clients.due
        if len(self.flying) < self.depth:
            wake = self.engine.wake_at()
            if wake is not None and self.now < wake < event:
                event = wake
        return event if event == NEVER else min(event, self.horizon)

    def _tell(self) -> None:
        """Tell clients and device who has ended."""
        over, gone = self.engine.over, self.engine.gone
        self.engine.over, self.engine.gone = [], []
        for request in gone:
            self.device.close(request.id)
        for request in over:
            self.clients.finished(request, self.now)
        if over:
            self.log.close()
        self.log.holds(self.engine.members.kv_tokens, self.engine.pool.allocated)
        if self.progress is not None:
            self.progress(self.clients.ended, len(self.traffic))

    def _plan(self) -> bool:
        """Plan a batch and dispatch it; False where there is nothing to do, which costs the host nothing."""
        engine, began = self.engine, perf_counter()
        if not self.flying:
            self.log.idle_until(self.now)
        engine.begin(self.now, self.clients.more_to_come)
        decision = None
        if engine.asks():
            asked = perf_counter()
            decision = self.policy.decide(engine.view)
            self.decide_s += perf_counter() - asked
        batch = engine.apply(decision)
        if engine.over or engine.gone:
            self._tell()
        if batch is not None:
            shape = self._shape(batch)
            cost = self.costs.plan(shape)
            exposed = self._exposed(self.now, self.now + cost)
            planned = self.now + cost
            output = self.device.wait(self.device.submit(batch, planned))
            self.now = min(planned, self.horizon)
            self.device_free = output.ended
            self.flying.append(Flying(output, shape, cost, exposed))
        self.plan_s += perf_counter() - began
        if batch is None and decision is not None and engine.asking.changed and not self.flying:
            return True  # it has preempted or rejected: what follows from that is planned at once
        return batch is not None

    def _commit(self, ready: Time, done: Time) -> None:
        began = perf_counter()
        flying = self.flying.popleft()
        engine, log, output, shape = self.engine, self.log, flying.output, flying.shape
        self.now = done
        allocated = engine.pool.allocated
        events = engine.commit(output, done)
        exposed = flying.exposed + self._exposed(ready, done)
        log.step(shape, output, events, done, flying.host + done - ready, exposed, allocated)
        for request in events.reached:
            engine.cancel(request.id, done)
        if events.outran:
            asked = perf_counter()
            self.clients.outran(events.outran, done)
            began += perf_counter() - asked  # a predictor's time is its own
        if engine.over or engine.gone:
            self._tell()
        else:
            log.holds(engine.members.kv_tokens, engine.pool.allocated)
        self.commit_s += perf_counter() - began

    def _jump(self) -> None:
        """Advance all running requests at once, to at most just before something happens.

        Host and device times follow from one recurrence: a step is planned when the one before last is committed
        (overlap) or the last (sync), and starts when it is planned and the device is free.
        """
        engine = self.engine
        if self.flying and self.flying[0].output.stopped:
            return
        steps = horizon(engine, self.device.horizon())
        if steps < SHORTEST_JUMP:
            return
        batch = quiet_batch(engine)
        shape = self._shape(batch)
        times = self._timeline(shape, self.device.durations(batch, steps))
        steps = len(times.commits)
        if not steps:
            return
        allocated = skip(engine, steps)
        batch.number = engine.dispatched
        output = self.device.skip(batch, times.starts[-1], times.ends[-1])
        plan, commit = self.costs.plan(shape), self.costs.commit(shape)
        if self.flying:
            # the batch in flight is the first that the jump commits, and its last one is in flight afterwards
            before = self.flying[0]
            starts = [before.output.started, *times.starts[:-1]]
            ends = [before.output.ended, *times.ends[:-1]]
            host, exposed = before.host - plan, before.exposed - times.exposed_plans[-1]
            last_planned = times.commits[-2] if steps > 1 else self.now
            self.flying[0] = Flying(output, replace(shape, planned=last_planned), plan, times.exposed_plans[-1])
            shape = before.shape
        else:
            starts, ends, host, exposed = times.starts, times.ends, 0, 0
        self.log.run(
            engine.committed - steps + 1,
            shape,
            started=starts[0],
            ended=ends[-1],
            busy=sum(ends) - sum(starts),
            commits=times.commits,
            kv_blocks=allocated,
            host=host + steps * (plan + commit),
            exposed=exposed + sum(times.exposed_plans) + times.exposed_commits,
        )
        self.now, self.device_free = times.commits[-1], times.ends[-1]
        skipped_to(engine, self.now, ends[-1])

    def _timeline(self, shape: StepShape, durations: Sequence[Time]) -> Timeline:
        """Host and device times of quiet steps; ends before the first that would meet an event."""
        plan, commit, overlap = self.costs.plan(shape), self.costs.commit(shape), self.depth == 2
        event = min(self._next_event(), self.horizon)
        now, free = self.now, self.device_free
        times = Timeline()
        for device in durations:
            planned = now + plan
            start = max(planned, free)
            end = start + device
            done = (start if overlap else end) + commit
            if event <= done:
                break
            times.exposed_plans.append(max(0, planned - max(now, free)))
            times.exposed_commits += max(0, commit - device) if overlap else commit
            times.starts.append(start)
            times.ends.append(end)
            times.commits.append(done)
            now, free = done, end
        return times

    def _shape(self, batch: Batch) -> StepShape:
        engine = self.engine
        return StepShape(
            engine.members.flights[-1].version if engine.members.flights else engine.version,
            engine.decisions,
            self.now,
            len(batch.decodes),
            len(batch.chunks),
            sum([chunk.count for chunk in batch.chunks]) if batch.chunks else 0,
            batch.padding,
            engine.waiting.size,
            engine.num_running,
        )

    def _exposed(self, start: Time, end: Time) -> Time:
        """How much of a piece of host work the device, busy until `device_free`, does not hide."""
        free = self.device_free
        if free <= start:
            return end - start
        return end - free if end > free else 0
