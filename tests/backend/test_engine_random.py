"""Random operations on a small pool: whatever is called when, no block is lost, shared or free twice."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from random import Random

import pytest

from backend.errors import DuplicateId, Refused
from backend.request import Phase, Request
from engine_by_hand import Machine, Script
from policies.api import Decision, EngineView, RequestView
from predictors.api import Prediction

OPERATIONS = 2000


class Anything(Script):
    """Admits in a random order, and sometimes preempts and rejects whoever it sees."""

    preemptive = True

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self.chance = chance

    def decide(self, view: EngineView) -> Decision:
        waiting, running = list(view.waiting), list(view.running)
        self.chance.shuffle(waiting)
        reject = [(waiting.pop(), "")] if waiting and self.chance.random() < 0.02 else []
        preempt = self.chance.sample(running, 1) if running and self.chance.random() < 0.1 else []
        return Decision(waiting, preempt, reject, skip_blocked=self.chance.random() < 0.5, revisit_steps=1)

    def victim(self, candidates: list[RequestView], wanted: RequestView) -> RequestView | None:  # type: ignore[override]
        return self.chance.choice([*candidates, *([] if wanted.running else [None])])

    def reservation(self, request: RequestView) -> int | None:
        return request.number * 7 % 11 or None


def audit(m: Machine) -> None:
    """Every count that the engine keeps, against a recount."""
    engine, members, view = m.engine, m.engine.members, m.engine.view
    engine.pool.audit(members.owned_tables())
    assert engine.pool.free + sum(len(table) for table in members.owned_tables()) == engine.pool.num_blocks
    assert engine.pool.free == len(engine.pool._free)

    waiting, running = list(view.waiting), list(view.running)
    assert [r.number for r in waiting] == sorted(r.number for r in waiting)
    assert (view.num_waiting, view.num_running) == (len(waiting), len(running))
    assert {r.id for r in waiting + running} == {r.id for r in engine.live.values() if r.phase != Phase.DONE}
    assert all(r.running for r in running)
    assert not any(r.running or r.computed_tokens for r in waiting)
    for counted, among in ((view.waiting_of, waiting), (view.running_of, running)):
        tally = Counter(r.tenant for r in among)
        assert {t: counted(t) for t in "abc"} == {t: tally[t] for t in "abc"}
    leaving = [entry.request for entries in members.leaving.values() for entry in entries]
    assert (members.leaving_slots, members.leaving_blocks) == (len(leaving), sum(len(r.table) for r in leaving))
    assert view.free_slots == engine.config.max_num_seqs - len(running) - len(leaving) >= 0


def audit_served(m: Machine, everybody: list[Request]) -> None:
    for tenant in "abc":
        own = [r for r in everybody if r.tenant == tenant]
        made = sum(r.outputs(m.engine.committed) for r in own)
        assert m.engine.view.served(tenant) == (sum(r.prompt_done for r in own), made)
    for r in everybody:
        assert 0 <= r.outputs(m.engine.committed) <= max(r.max_tokens, 0)


@pytest.mark.parametrize("admission", ["optimistic", "reserve", "peak"])
@pytest.mark.parametrize("overlap", [False, True], ids=["sync", "overlap"])
@pytest.mark.parametrize("seed", range(4))
def test_random_operations_on_eight_blocks(seed: int, overlap: bool, admission: str) -> None:
    chance = Random(f"{seed} {overlap} {admission}")
    m = Machine(
        Anything(chance),
        blocks=8,
        block_size=chance.choice([1, 4, 16]),
        overlap=overlap,
        admission=admission,
        max_num_seqs=chance.choice([1, 3, 6]),
        max_num_batched_tokens=chance.choice([6, 20, 1000]),
        max_waiting=10,
    )
    room = 8 * m.engine.pool.block_size
    everybody: list[Request] = []
    for _ in range(OPERATIONS):
        live = [r for r in m.engine.live.values() if r.phase != Phase.DONE]
        running = [r for r in live if r.phase in (Phase.PREFILL, Phase.DECODE)]
        operation = chance.choice(["add", "step", "step", "plan", "commit", "cancel", "preempt", "finish", "predict"])
        if operation == "add":
            with suppress(Refused, DuplicateId):
                everybody.append(
                    m.add(
                        chance.choice(["", "", "same"]),
                        prompt=chance.randint(1, room),
                        output=chance.randint(1, 12),
                        max_tokens=chance.choice([None, 3, 8]),
                        tenant=chance.choice("abc"),
                    )
                )
        elif operation == "step":
            m.step()
        elif operation == "plan" and len(m.flying) < m.depth:
            m.plan()
        elif operation == "commit" and m.flying:
            m.commit()
        elif operation == "cancel":
            m.engine.cancel(chance.choice([*live, *everybody]).id if everybody else "nobody", m.now)
        elif operation == "preempt" and running and len(m.flying) <= 1:  # a plan never finds two batches in flight
            m.engine.begin(m.now)
            running = [r for r in running if r.phase in (Phase.PREFILL, Phase.DECODE)]
            if running:
                m.engine.preempt(chance.choice(running))
        elif operation == "finish" and live:
            m.engine.end(chance.choice(live), "completed", "stop")
        elif operation == "predict" and live:
            m.engine.predict(chance.choice(live), Prediction(chance.randint(1, 9), 9, ""), m.now)
        m.tell()
        audit(m)
        audit_served(m, everybody)
    for request in list(m.engine.live.values()):
        m.cancel(request)
    while m.flying:
        m.commit()
    assert m.engine.live == {}
    assert m.engine.pool.free == 8
    assert m.engine.members.kv_tokens == 0
    assert len(m.ended) == len({r.number for r in m.ended}) == len(everybody), "each ends once"
    assert sum(r.preemptions for r in everybody) > 20
