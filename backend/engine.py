"""The engine: a step machine without I/O. It has no clock, no thread and no tensor; it is told the time.

One step, in the words of a driver::

    engine.begin(now)
    decision = policy.decide(engine.view) if engine.asks() else None
    batch = engine.apply(decision)
    ticket = device.submit(batch)
    output = device.wait(ticket)
    events = engine.commit(output, now)

Under overlap a driver dispatches batch N+1 before it commits batch N; the engine counts what is in flight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from backend.admission import make_admission
from backend.api import Batch, Chunk, Output
from backend.asking import Asking
from backend.batching import make_batching
from backend.blocks import BlockPool
from backend.config import EngineConfig
from backend.decisions import follow
from backend.errors import BadConfig, DuplicateId, EngineBroken, Refused
from backend.fitting import unfit
from backend.invariants import check
from backend.journal import Journal
from backend.members import Flight, Late, Members
from backend.request import Phase, Request
from backend.shortage import make_room
from backend.spells import begin_spell, commit_late, credit_prompt, settle
from backend.tenants import Tenant
from backend.views import EngineFace, RequestFace, Truth, face
from backend.waiting import WaitingQueue
from backend.watches import Watches
from policies.api import Decision, Limits, Policy, Time
from predictors.api import Prediction


@dataclass(slots=True)
class Events:
    """What one commit brought."""

    tokens: int = 0  # handed over
    wasted: int = 0  # slots of members that had ended by an EOS not known when they were planned
    gaps: int = 0  # tokens whose predecessor came with the batch before
    outran: Sequence[Request] = ()  # made more than predicted: predict again
    reached: Sequence[Request] = ()  # made as many tokens as `watch` asked for


class Engine:
    def __init__(
        self,
        policy: Policy,
        config: EngineConfig,
        num_blocks: int,
        block_size: int,
        model_len: int,
        rng: np.random.Generator,
        truth: Truth | None = None,
    ) -> None:
        """`model_len` is what the model can hold; `truth` is given only if the policy declares the oracle."""
        config.check()
        if num_blocks < 1 or block_size < 1:
            raise BadConfig(f"the pool has {num_blocks} blocks of {block_size} tokens; it needs at least one of one")
        self.policy = policy
        self.policy_name = type(policy).__name__
        self.config = config
        self.truth = truth
        self.max_model_len = config.max_model_len or min(model_len, num_blocks * block_size)
        if self.max_model_len > model_len:
            raise BadConfig(f"engine.max_model_len: {self.max_model_len} is more than the model's {model_len}")
        if not config.chunked_prefill and config.max_num_batched_tokens < self.max_model_len:
            raise BadConfig(
                f"engine.max_num_batched_tokens: {config.max_num_batched_tokens} is less than max_model_len = "
                f"{self.max_model_len}, so with engine.chunked_prefill=false a prompt may never fit a step"
            )
        self.pool = BlockPool(num_blocks, block_size)
        self.admission = make_admission(config.admission, num_blocks, block_size)
        self.batching = make_batching(config)
        self.members = Members(self.pool)
        self.waiting = WaitingQueue()
        self.tenants: dict[str, Tenant] = {}
        self.asking = Asking()
        self.watches = Watches("prediction" in policy.needs)
        self.journal = Journal()
        self.live: dict[str, Request] = {}
        self.now: Time = 0
        self.dispatched = 0
        self.committed = 0
        self.decisions = 0
        self.version = 0
        """Counts whatever makes the next batch differ from the last."""
        self.budget = config.max_num_batched_tokens
        self.padding = 0
        self.more_to_come = True
        self.round = 0
        """Counts plans; one that waits for a commit to free blocks goes on when it is tried again."""
        self.shortage_round = 0
        self.chunks: list[Chunk] = []
        self.over: list[Request] = []
        """Requests that have reached their terminal state; a driver takes them."""
        self.gone: list[Request] = []
        """Of those, the ones that no batch holds any more; a driver takes them."""
        self._blocked = False
        self.submitted = 0
        self.ended = 0
        self.last_commit: Time = 0
        self.last_device_end: Time = 0
        self.view = EngineFace(self)
        limits = Limits(
            config.batching,
            config.overlap,
            config.admission,
            config.max_num_seqs,
            config.max_num_batched_tokens,
            block_size,
            num_blocks,
            self.max_model_len,
        )
        try:
            policy.reset(limits, rng)
        except ValueError as error:
            raise BadConfig(f"policy {self.policy_name} does not go with this engine: {error}") from error

    # -- requests come and go

    def submit(self, request: Request, now: Time) -> None:
        """Put a new request in the queue.

        Raises DuplicateId while another with this id is live, and Refused (recorded as rejected) if it can never run
        or the queue is full.
        """
        self.now = now
        if request.id in self.live:
            raise DuplicateId(f"request {request.id}: an earlier one with this id has not ended")
        self.submitted += 1
        request.number = self.submitted
        request.submitted = now
        request.view = RequestFace(request, self)
        request.account = self.tenant(request.tenant)
        reason = unfit(self, request)
        if reason:
            self._refuse(request, reason)
            raise Refused(f"request {request.id}: {reason}")
        limit = self.max_model_len - request.prompt_tokens
        request.max_tokens = limit if request.unlimited else min(request.max_tokens, limit)
        self.live[request.id] = request
        self.waiting.join(request)
        self.journal.waits(request.account, now)
        self.policy.on_arrival(request.view, self.view)
        if request.prediction is not None:
            self.policy.on_prediction(request.view, self.view)
        self._changed()

    def predict(self, request: Request, prediction: Prediction, now: Time) -> None:
        """A predictor has answered; of a request that has ended meanwhile, a no-op."""
        if request.phase == Phase.DONE:
            return
        self.now = now
        request.prediction = prediction
        if request.first_prediction is None:
            request.first_prediction = prediction
        self.watches.predicted(request)
        self.policy.on_prediction(face(request), self.view)
        self.asking.changed = True

    def watch(self, request: Request, tokens: int) -> None:
        """Report in `Events.reached` when `request` has made `tokens`."""
        self.watches.want(request, tokens)

    def cancel(self, request_id: str, now: Time, called: Time | None = None) -> Request | None:
        """End a live request; of an unknown or ended one, a no-op. `called`: when the client left, if before `now`."""
        request = self.live.get(request_id)
        if request is None or request.phase == Phase.DONE:
            return None
        self.now = now
        request.cancel_called = now if called is None else called
        self.end(request, "cancelled", "cancelled")
        return request

    def end(self, request: Request, state: str, reason: str, detail: str = "") -> None:
        """The terminal state of a live request; its blocks follow when no batch holds it."""
        now = self.now
        tenant = request.account
        request.ended, request.state, request.finish_reason, request.detail = now, state, reason, detail
        self.watches.forget(request)
        self.ended += 1
        self.over.append(request)
        if request.phase == Phase.WAITING:
            self._leave_queue(request)
            free = not request.holds
            if free:
                request.freed = now
        else:
            in_batch = request.phase != Phase.ENDING
            last, written = self._take_out(request)
            self.members.mark_dead(request, last, wasted=reason == "stop")
            if state != "completed" and request.anchor:
                request.made = last - max(self.committed, request.anchor - 1)
            settle(self, request)
            if self.batching.closed and in_batch:
                self.padding += 1
            tenant.running -= 1
            free = self.members.leave(request, written, last, self.committed, now)
        request.phase = Phase.DONE
        self.policy.on_finish(face(request), state, self.view)
        if free:
            self._forget(request)
        self._changed()

    # -- a step: begin, decide, apply

    def begin(self, now: Time, more_to_come: bool = True) -> None:
        """Drop what has ended, grow running decodes (which may preempt), go on with begun prefills."""
        self.now = now
        self.more_to_come = more_to_come
        members = self.members
        if members.graduates:
            members.promote()
        if dropped := members.drop_ended(self.dispatched):
            self._dropped(dropped)
        if not (self._blocked and members.decodes):
            self.round += 1
        batch = self.dispatched + 1
        self._blocked = not make_room(self, batch)
        if self.padding and not members.count - members.num_ending:
            self.padding = 0
        self.budget = self.config.max_num_batched_tokens - len(members.decodes) - self.padding
        self.chunks = []
        if members.prefilling and not self._blocked:
            for request in members.prefilling:
                if not self.plan_chunk(request):
                    break

    def asks(self) -> bool:
        """Whether the policy is to be asked in this step."""
        if not self.waiting.size or self._blocked:
            return False
        if self.shortage_round == self.round:
            return False
        if not (self.asking.due(self.now, self.dispatched + 1) or self._timed_out()):
            return False
        if self.batching.closed:
            return not self.members.slots and self.batching.ready(self.waiting, self.now, self.more_to_come)
        return self.budget > 0 and (self.free_slots > 0 or self.policy.preemptive)

    def apply(self, decision: Decision | None) -> Batch | None:
        """Follow the decision as far as it fits, each part checked before anything changes for it; dispatch a batch.

        Returns None when there is nothing to run. Raises InvalidDecision.
        """
        if self._blocked:
            return None
        if decision is not None:
            self.decisions += 1
            self.asking.answered(decision, self.now, self.dispatched + 1)
            follow(self, decision)
        members = self.members
        if not members.decodes and not self.chunks:
            return None
        self.dispatched += 1
        number = self.dispatched
        planned = []
        context = members.context_tokens(number)
        for chunk in self.chunks:
            request = self.live[chunk.member.id]
            context += chunk.start + chunk.count
            request.planned += chunk.count
            request.last_batch = number
            if chunk.last:
                del members.prefilling[request]
                members.graduates[request] = None
                request.anchor = number
                request.phase = Phase.DECODE
                self.watches.start(request)
            planned.append((chunk, request, request.epoch))
        members.flights.append(Flight(number, len(members.decodes), planned, self.version))
        if planned:
            self.version += 1
        return Batch(number, members.decodes.keys(), self.chunks, self.padding, context)

    def commit(self, output: Output, now: Time) -> Events:
        """Take the results of the oldest batch in flight: tokens out, finishes, blocks freed; invariants checked."""
        members = self.members
        flight = members.flights.popleft()
        batch = output.number
        if flight.number != batch:
            raise EngineBroken(f"batch {batch} came back, batch {flight.number} is the oldest in flight")
        self.now = self.last_commit = now
        self.committed = batch
        self.last_device_end = output.ended
        if members.graduates:
            members.promote()
        gaps = flight.decodes - flight.dead
        events = Events(tokens=gaps, wasted=flight.wasted, gaps=gaps)
        members.kv_tokens += flight.decodes
        for chunk, request, epoch in flight.chunks:
            members.kv_tokens += chunk.count
            if request.scheduled < 0:
                request.scheduled = output.started
            if request.phase != Phase.DONE:
                credit_prompt(self, chunk, request)
            if request.epoch == epoch:
                request.computed = chunk.start + chunk.count
                if chunk.last:
                    events.tokens += 1
                    request.account.starts_decoding(batch)
                    begin_spell(self, request)
        if members.late:
            for late in members.late.pop(batch, ()):
                commit_late(self, late, batch, events)
        for request_id in output.stopped:
            stopped = self.live.get(request_id)
            if stopped is not None and stopped.phase != Phase.DONE:
                self.end(stopped, "completed", "stop")
        if dropped := members.drop_ended(batch):
            self._dropped(dropped)
        if members.ending:
            while members.ending.get(batch):
                self.end(members.ending[batch][0], "completed", "length")
            members.ending.pop(batch, None)
        if due := self.watches.due(batch):
            events.outran, reached = due
            if reached:
                events.reached = [*events.reached, *reached]
        if members.leaving and (gone := members.freed_by(batch, now)):
            for request in gone:
                if request.phase == Phase.DONE:
                    if request.made:
                        request.last_made = output.ended
                    self._forget(request)
            self.asking.changed = True
        check(self)
        return events

    def abandon(self, now: Time, failure: str | None = None) -> None:
        """The run is cut off: whatever is live stays unfinished, or has failed, and is recorded so."""
        self.now = now
        for request in self.live.values():
            if request.phase == Phase.WAITING:
                self._leave_queue(request)
            elif request.phase != Phase.DONE:
                settle(self, request)
            if request.phase != Phase.DONE:
                request.state = request.finish_reason = "unfinished" if failure is None else "failed"
                if failure is not None:
                    request.ended, request.detail = now, failure
            self.journal.request(request)
        self.live.clear()

    # -- used by the modules beside this one

    @property
    def num_running(self) -> int:
        return self.members.count

    @property
    def free_slots(self) -> int:
        return self.config.max_num_seqs - self.members.slots

    def running(self) -> Iterator[Request]:
        """Those whose last token by length is in flight, then the others in order of admission."""
        return chain(*self.members.ending.values(), self.members)

    def tenant(self, name: str) -> Tenant:
        known = self.tenants.get(name)
        if known is None:
            known = self.tenants[name] = Tenant(len(self.tenants))
        return known

    def in_flight_tokens(self, request: Request) -> int:
        if request.phase in (Phase.DECODE, Phase.ENDING):
            last = request.last_batch if request.phase == Phase.ENDING else self.dispatched
            return max(0, last - max(self.committed, request.anchor - 1))
        return sum(late.request is request for lates in self.members.late.values() for late in lates)

    def wake_at(self) -> Time | None:
        """When a hold, a revisit or the batch timeout comes due with nothing else happening."""
        if not self.waiting.size:
            return None
        wake = self.asking.wake_at(self.now)
        if self.batching.closed and not self.members.slots:
            due = self.batching.due(self.waiting)
            if due is not None and due > self.now and (wake is None or due < wake):
                return due
        return wake

    def plan_chunk(self, request: Request) -> bool:
        """Give `request` a piece of the budget; False when there is none for it in this step."""
        left = request.target - request.planned
        count = min(self.budget, left)
        if count <= 0 or (count < left and not self.config.chunked_prefill):
            return False
        self.chunks.append(Chunk(request, request.planned, count, count == left))
        self.budget -= count
        return True

    def admit(self, request: Request, blocks: int) -> None:
        """`blocks` are there: the request leaves the queue."""
        tenant = request.account
        self._leave_queue(request)
        tenant.running += 1
        request.phase = Phase.PREFILL
        request.freed = -1
        request.planned = request.computed = 0
        request.anchor = request.last_batch = 0
        request.table = self.pool.take(blocks)
        request.holds = True
        self.members.admit(request)
        self.plan_chunk(request)
        self.policy.on_admit(face(request), self.view)

    def preempt(self, request: Request) -> None:
        """Drop the KV of a running request and put it back in the queue; a token in flight for it is kept."""
        decoding = request in self.members.decodes
        last, written = self._take_out(request)
        late = request.anchor and last > max(self.committed, request.anchor - 1)
        if late:
            self.members.late.setdefault(last, []).append(Late(request, request.anchor == last))
        settle(self, request)
        tenant = request.account
        tenant.running -= 1
        self.members.leave(request, written, last, self.committed, -1)
        if decoding:
            self.budget += 1
        planned = [chunk for chunk in self.chunks if chunk.member is request]
        for chunk in planned:
            self.chunks.remove(chunk)
            self.budget += chunk.count
        request.phase = Phase.WAITING
        request.planned = request.computed = 0
        request.evicted_in = self.round
        request.preemptions += 1
        request.wait_since = self.now
        self.waiting.rejoin(request)
        self.journal.waits(tenant, self.now)
        self.policy.on_preempt(face(request), self.view)
        self._changed()

    # -- inside

    def _changed(self) -> None:
        self.asking.changed = True
        self.version += 1

    def _dropped(self, count: int) -> None:
        """So many decodes have their last token, by length, in flight or committed."""
        self.version += 1
        if self.batching.closed:
            self.padding += count

    def _refuse(self, request: Request, reason: str) -> None:
        self.ended += 1
        request.phase = Phase.DONE
        request.state, request.finish_reason, request.detail = "rejected", "refused", reason
        request.ended = request.freed = self.now
        request.view = None
        self.journal.request(request)

    def _leave_queue(self, request: Request) -> None:
        self.waiting.leave(request)
        self.journal.waits_no_more(request.account, self.now)
        waited = max(0, self.now - request.wait_since)
        request.waited += waited
        if request.preemptions:
            request.preempted_wait += waited

    def _take_out(self, request: Request) -> tuple[int, int]:
        """Remove from the members: (last batch that holds it, KV tokens in its blocks by then)."""
        last = self.members.take_out(request, self.dispatched)
        return last, request.written(last) if request.anchor else request.planned

    def _forget(self, request: Request) -> None:
        del self.live[request.id]
        request.view = None  # a cycle would keep both until a full garbage collection
        self.gone.append(request)
        self.journal.request(request)

    def _timed_out(self) -> bool:
        """The batch timeout has come due since the policy was asked."""
        due = self.batching.due(self.waiting)
        return due is not None and self.asking.answered_at < due <= self.now
