"""What a policy sees is what has happened: committed tokens only, and counts that agree with what can be walked."""

from __future__ import annotations

import pytest

from engine_by_hand import Machine, Script
from policies.api import Decision, EngineView, RequestView, Served
from traffic_by_hand import MS

both_loops = pytest.mark.parametrize("overlap", [False, True], ids=["sync", "overlap"])


@both_loops
def test_output_tokens_are_those_handed_over_and_no_placeholder_is_among_them(overlap: bool) -> None:
    """Asked at every step, while batches are in flight, of one that is preempted on the way."""
    handed_over = 0
    seen: list[tuple[int, int]] = []

    def look(view: EngineView) -> Decision:
        [request] = [r for r in (*view.waiting, *view.running) if r.id == "r"]
        assert request.output_tokens == handed_over
        seen.append((request.output_tokens, request.in_flight_tokens))
        preempt = [request] if request.running and request.output_tokens == 6 and not request.preemptions else []
        return Decision(admit=[] if preempt else [r for r in view.waiting if r.id == "r"], preempt=preempt)

    m = Machine(Script(look, preemptive=True), overlap=overlap, max_num_seqs=2)
    request = m.add("r", output=12)
    m.add("waits")
    while request.state == "":
        m.engine.asking.changed = True
        events = m.step()
        handed_over += events.tokens if events else 0
    assert handed_over == request.base == 12
    in_flight = {flying for _, flying in seen[1:]}
    assert in_flight == ({0, 1} if overlap else {0})


def test_the_life_of_one_request_in_sync() -> None:
    m = Machine(max_num_batched_tokens=8, max_num_seqs=1, block_size=4)
    request = m.add(prompt=12, output=3)
    view = request.view
    assert view is not None

    def state() -> tuple[bool, int, int, int, int]:
        return view.running, view.computed_tokens, view.output_tokens, view.in_flight_tokens, view.blocks

    assert state() == (False, 0, 0, 0, 0)
    m.plan()
    assert state() == (True, 0, 0, 0, 3)
    m.commit()
    assert state() == (True, 8, 0, 0, 3)
    m.plan()
    assert state() == (True, 8, 0, 1, 3)
    m.commit()
    assert state() == (True, 12, 1, 0, 3)
    m.plan()
    assert state() == (True, 12, 1, 1, 4)
    m.commit()
    assert state() == (True, 13, 2, 0, 4)
    m.step()
    assert (view.running, view.output_tokens, view.blocks) == (False, 3, 0)
    assert m.engine.view.served("t") == Served(12, 3)


def test_a_chunk_in_flight_makes_no_token() -> None:
    m = Machine(overlap=True, max_num_batched_tokens=8, max_num_seqs=1)
    request = m.add(prompt=20, output=9)
    flying = []
    for _ in range(3):
        m.plan()
        flying.append(m.engine.in_flight_tokens(request))
        if len(m.flying) == 2:
            m.commit()
    m.plan()
    assert [*flying, m.engine.in_flight_tokens(request)] == [0, 0, 1, 2]


@both_loops
def test_waited_adds_up_over_spells_in_the_queue(overlap: bool) -> None:
    m = Machine(Script(), overlap=overlap, max_num_seqs=1)
    m.now = 7 * MS
    request = m.add(output=30)
    view = request.view
    assert view is not None
    m.now = 20 * MS
    m.engine.begin(m.now)
    assert view.waited == 13 * MS
    m.step()
    assert view.waited == 13 * MS
    while m.flying:
        m.commit()
    m.engine.begin(m.now)
    m.engine.preempt(request)
    m.now += 100 * MS
    m.engine.begin(m.now)
    assert view.waited == 113 * MS
    m.step()
    assert (request.waited, request.preempted_wait, view.preemptions) == (113 * MS, 100 * MS, 1)
    assert view.arrival == 7 * MS


def test_served_counts_what_is_new_and_kept() -> None:
    """A prompt computed twice counts once; a token of a cancelled request counts if it was handed over."""
    m = Machine(Script(), overlap=True, max_num_seqs=2)
    request = m.add(prompt=10, output=30, tenant="a")
    other = m.add(prompt=5, output=4, tenant="b")
    for _ in range(3):
        m.step()
    m.engine.begin(m.now)
    m.engine.preempt(request)
    for _ in range(6):
        m.step()
    m.cancel(request)
    m.drain()
    assert m.engine.view.served("b") == Served(5, 4)
    assert m.engine.view.served("a") == Served(10, request.base)
    assert m.engine.view.served("nobody") == Served(0, 0)
    assert other.made == 0 < request.made


@both_loops
def test_running_counts_those_whose_last_token_is_in_flight(overlap: bool) -> None:
    m = Machine(Script(), overlap=overlap, max_num_seqs=4)
    for limit in (1, 2, 3):
        m.add(max_tokens=limit, output=99)
    view = m.engine.view
    while m.engine.live:
        m.plan()
        running: list[RequestView] = list(view.running)
        assert len(running) == view.num_running == view.running_of("t")
        assert all(r.running for r in running)
        while len(m.flying) > overlap or (m.flying and not m.engine.members.decodes):
            m.commit()
    assert view.num_running == 0


def test_the_clock_and_the_step_of_a_decision() -> None:
    seen: list[tuple[int, int, int, int]] = []

    def look(view: EngineView) -> Decision:
        seen.append((view.now // MS, view.step, view.token_budget, view.free_slots))
        return Decision(admit=list(view.waiting)[:1], revisit_steps=1)

    m = Machine(Script(look), max_num_batched_tokens=100, max_num_seqs=3)
    for _ in range(4):
        m.add(output=50)
    for _ in range(4):
        m.step()
    assert seen == [(0, 1, 100, 3), (15, 2, 99, 2), (30, 3, 98, 1)]
