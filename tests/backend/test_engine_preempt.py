"""Preemption by recompute, at every moment: nothing is lost, nothing is made twice, nothing is freed too early.

`MemoryDevice` refuses a batch that would compute anything but what the request computes alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from backend.request import Phase
from engine_by_hand import Machine, Script
from policies.api import Decision, EngineView, InvalidDecision, RequestView
from policies.fcfs import FCFS

both_loops = pytest.mark.parametrize("overlap", [False, True], ids=["sync", "overlap"])


@both_loops
@pytest.mark.parametrize("stop", [True, False], ids=["eos", "length"])
@pytest.mark.parametrize("k", range(1, 16))
def test_preempted_right_after_step_k_it_makes_its_solo_tokens(k: int, stop: bool, overlap: bool) -> None:
    """Three chunks of prefill, then ten tokens; the neighbour is in its own steps throughout."""
    m = Machine(overlap=overlap, max_num_batched_tokens=16, max_num_seqs=4, block_size=4)
    request = m.add("r", prompt=40, output=10 if stop else 99, max_tokens=None if stop else 10)
    neighbour = m.add("n", prompt=5, output=12)
    tokens, preempted = 0, 0
    while m.engine.live:
        if m.engine.dispatched >= k and not preempted and request.phase in (Phase.PREFILL, Phase.DECODE):
            m.engine.begin(m.now, more_to_come=False)
            if request.phase in (Phase.PREFILL, Phase.DECODE):
                m.engine.preempt(request)
                preempted += 1
        events = m.step()
        assert events is not None
        tokens += events.tokens
    assert tokens == 22
    assert (request.base, neighbour.base) == (10, 12)
    assert request.state == neighbour.state == "completed"
    eos_in_flight = k == 12 and stop and overlap
    assert request.preemptions == preempted == (k < 12 or eos_in_flight)
    assert request.made == neighbour.made == 0
    assert m.engine.pool.free == 100


@both_loops
def test_a_preempted_request_keeps_the_token_in_flight_and_its_first_token_time(overlap: bool) -> None:
    m = Machine(overlap=overlap)
    request = m.add(output=6)
    m.step()
    first = request.first_token
    m.step()
    m.engine.begin(m.now, more_to_come=False)
    streamed, flying = request.outputs(m.engine.committed), len(m.flying)
    m.engine.preempt(request)
    assert flying == overlap
    assert (request.base, m.engine.in_flight_tokens(request)) == (streamed, flying)
    m.drain()
    assert (request.base, request.first_token, request.state) == (6, first, "completed")


def test_an_eos_in_flight_ends_a_request_that_waits() -> None:
    m = Machine(overlap=True, max_num_seqs=1)
    request = m.add(output=3)
    m.step()
    m.step()
    m.engine.begin(m.now, more_to_come=False)
    m.engine.preempt(request)
    assert (request.phase, request.base) == (Phase.WAITING, 2)
    events = m.commit()
    assert (events.tokens, request.state, request.finish_reason, request.base) == (1, "completed", "stop", 3)
    assert m.engine.live == {}
    assert m.engine.pool.free == 100


def test_a_last_token_by_length_in_flight_ends_a_request_that_is_ending_and_never_a_victim() -> None:
    m = Machine(Script(lambda view: Decision(preempt=kept), preemptive=True), overlap=True, max_num_seqs=1)
    m.policy.answer = lambda view: Decision(admit=view.waiting)
    request = m.add(output=9, max_tokens=3)
    kept: Sequence[RequestView] = [next(m.engine.view.waiting)]
    m.step()
    m.step()  # tokens 1 and 2 are out, the third is in flight: the end by length is known
    m.policy.answer = lambda view: Decision(preempt=kept)
    waiting = m.add(output=2)
    assert m.plan() is None
    assert (request.phase, request.preemptions) == (Phase.ENDING, 0)
    m.policy.answer = lambda view: Decision(admit=view.waiting)
    m.drain()
    assert (request.base, request.finish_reason, waiting.base) == (3, "length", 2)


def test_eos_one_step_before_max_tokens_ends_once() -> None:
    m = Machine(overlap=True)
    requests = [m.add(output=output, max_tokens=5) for output in (3, 4, 5, 6)]
    assert m.drain() == 3 + 4 + 5 + 5
    assert m.ended == requests
    assert [r.finish_reason for r in requests] == ["stop", "stop", "stop", "length"]
    assert {r.state for r in requests} == {"completed"}


@both_loops
def test_a_chunk_of_this_step_goes_with_its_request(overlap: bool) -> None:
    """Two chunks done of a long prompt; its third is planned, then the policy preempts it and admits another."""

    def answer(view: EngineView) -> Decision:
        if view.step == 3:
            assert view.token_budget == 0 or view.token_budget < 16
            [long] = view.running
            return Decision(preempt=[long], admit=[r for r in view.waiting if r.id == "short"])
        return Decision(admit=view.waiting)

    m = Machine(Script(answer, preemptive=True), overlap=overlap, max_num_batched_tokens=20, max_num_seqs=4)
    long = m.add("long", prompt=50, output=3)
    m.step()
    while m.engine.dispatched < 2:
        m.plan()
    while len(m.flying) > overlap:
        m.commit()
    short = m.add("short", prompt=6, output=2)
    batch = m.plan()
    assert batch is not None
    assert [(c.member.id, c.count, c.last) for c in batch.chunks] == [("short", 6, True)]
    assert long.preemptions == 1
    m.drain()
    assert (long.base, short.base) == (3, 2)


def test_one_whose_last_batch_is_in_flight_is_not_admitted_again_before_it_commits() -> None:
    """The slot and blocks that it left are not free yet, and its token is not known yet."""

    def answer(view: EngineView) -> Decision:
        if view.step == 3 and view.num_running:
            return Decision(preempt=view.running)
        return Decision(admit=[r for r in view.waiting if r.id != "last"] or view.waiting, skip_blocked=True)

    m = Machine(Script(answer, preemptive=True), overlap=True, max_num_seqs=2)
    request = m.add("r", output=5)
    m.step()
    m.add("last")
    assert m.plan() is None, "nobody is left to run"
    assert request.preemptions == 1
    newcomer = m.add(output=1)
    batch = m.plan()
    assert batch is not None
    assert [chunk.member.id for chunk in batch.chunks] == [newcomer.id]
    assert request.phase == Phase.WAITING, "its batch is in flight"
    m.drain()
    assert request.base == 5


def victims_of(policy: Script) -> Machine:
    """4 blocks of 4; three requests of one block and more to come: the fifth token of each wants another block."""
    m = Machine(policy, blocks=4, block_size=4, max_num_seqs=4)
    for name in "abc":
        m.add(name, prompt=3, output=9)
    return m


def test_the_newest_gives_way_and_never_the_oldest_who_runs() -> None:
    seen: list[tuple[str, list[str]]] = []

    class Watching(Script):
        def victim(self, candidates: Sequence[RequestView], wanted: RequestView) -> RequestView | None:
            if wanted.running:
                seen.append((wanted.id, [r.id for r in candidates]))
            return super().victim(candidates, wanted)

    m = victims_of(Watching())
    m.drain()
    assert [r.base for r in m.ended] == [9, 9, 9]
    assert m.ended[0].id == "a"
    assert seen[0] == ("b", ["b", "c"])
    assert all("a" not in candidates for _, candidates in seen), "it was the oldest as long as it ran"


@pytest.mark.parametrize("answer", [None, "oldest", "stranger"])
def test_a_victim_must_be_a_candidate(answer: str | None) -> None:
    class Wrong(Script):
        def victim(self, candidates: Sequence[RequestView], wanted: RequestView) -> RequestView | None:
            return None if answer is None else views[answer]

    m = victims_of(Wrong())
    views = {"oldest": m.engine.live["a"].view, "stranger": Machine().add().view}
    with pytest.raises(InvalidDecision, match=r"Wrong\.victim chose .* when request b needs a block; .* one of b, c"):
        m.drain()


def test_after_a_shortage_nobody_is_admitted_in_that_step() -> None:
    m = victims_of(Script())
    while not m.engine.live["c"].preemptions:
        m.step()
        asked = m.asked
    assert m.asked == asked
    preempted_in = m.engine.dispatched
    m.add("d", prompt=1, output=1)
    assert m.engine.shortage_round == m.engine.round
    m.step()
    assert m.engine.dispatched == preempted_in + 1


@both_loops
def test_victims_for_an_admission_are_taken_only_if_they_are_enough(overlap: bool) -> None:
    """8 blocks: a and b hold 3 each. c wants 6: a alone is not enough, and b is not offered."""
    offered: list[str] = []

    class Choosy(Script):
        preemptive = True

        def decide(self, view: EngineView) -> Decision:
            return Decision(admit=sorted(view.waiting, key=lambda r: -r.prompt_tokens))

        def victim(self, candidates: Sequence[RequestView], wanted: RequestView) -> RequestView | None:
            able = [r for r in candidates if r.id in allowed]
            offered.append(" ".join(r.id for r in candidates))
            return able[0] if able and not wanted.running else None

    allowed = {"a"}
    m = Machine(Choosy(), blocks=8, overlap=overlap)
    a, b = m.add("a", prompt=40), m.add("b", prompt=40)
    m.step()
    c = m.add("c", prompt=96, output=1)
    m.step()
    assert offered[-2:] == ["a b", "b"]
    assert (a.preemptions, b.preemptions, c.phase) == (0, 0, Phase.WAITING)
    allowed.add("b")
    m.add("d", prompt=96, output=1)  # something changed: the policy is asked again
    m.step()
    m.step()
    m.step()
    assert (a.preemptions, b.preemptions) == (1, 1)
    m.drain()
    assert m.ended[0].id == "c"
    assert (a.base, b.base, c.base) == (10, 10, 1)


def test_a_victim_is_not_readmitted_in_the_step_that_evicted_it() -> None:
    def answer(view: EngineView) -> Decision:
        running = list(view.running)
        return Decision(preempt=running, admit=[*running, *view.waiting], skip_blocked=True)

    m = Machine(Script(answer, preemptive=True), max_num_seqs=1)
    first = m.add("first")
    m.step()
    m.add("second", output=1)
    batch = m.plan()
    assert batch is not None
    assert [c.member.id for c in batch.chunks] == ["second"]
    assert first.phase == Phase.WAITING


@both_loops
def test_preemption_in_a_static_batch_waits_for_a_later_batch(overlap: bool) -> None:
    m = Machine(FCFS(), batching="static", overlap=overlap, blocks=4, block_size=4, max_num_seqs=3)
    requests = [m.add(name, prompt=3, output=9) for name in "abc"]
    m.drain()
    assert [r.base for r in requests] == [9, 9, 9]
    assert sum(r.preemptions for r in requests) >= 1
    assert requests[0].preemptions == 0
    assert m.engine.padding == 0 or m.engine.members.slots == 0
