"""The queue: its bound, ids that are taken, and what a refusal leaves behind."""

from __future__ import annotations

import pytest

from backend.errors import DuplicateId, Refused
from engine_by_hand import Machine, Script
from policies.api import Decision
from policies.fcfs import FCFS

both_loops = pytest.mark.parametrize("overlap", [False, True], ids=["sync", "overlap"])


@both_loops
def test_one_more_than_the_bound_is_refused_until_there_is_room(overlap: bool) -> None:
    m = Machine(max_waiting=2, max_num_seqs=1, overlap=overlap)
    m.add("a", output=2)
    m.step()
    m.add("b", output=2)
    m.add("c", output=2)
    with pytest.raises(Refused, match=r"request d: the queue is full: 2 wait \(engine\.max_waiting\)"):
        m.add("d")
    m.cancel(m.engine.live["b"])
    m.add("e", output=2)
    with pytest.raises(Refused, match="queue is full"):
        m.add("f")
    m.drain()
    assert [(r.id, r.state) for r in m.ended] == [
        ("b", "cancelled"),
        ("a", "completed"),
        ("c", "completed"),
        ("e", "completed"),
    ]
    rows = m.engine.journal.requests.frame().sort_values("number")
    assert list(rows["output_tokens"]) == [2, 0, 2, 0, 2, 0]
    assert m.engine.journal.details == {
        4: "the queue is full: 2 wait (engine.max_waiting)",
        6: "the queue is full: 2 wait (engine.max_waiting)",
    }


def test_a_preempted_request_returns_to_a_full_queue_and_counts_in_it() -> None:
    m = Machine(FCFS(), max_waiting=1, max_num_seqs=3, blocks=4, block_size=4)
    requests = [m.add(name, prompt=3, output=9) for name in "a"]
    m.step()
    requests.append(m.add("b", prompt=3, output=9))
    m.step()
    requests.append(m.add("c", prompt=3, output=9))
    m.step()
    while not any(r.preemptions for r in requests):
        m.step()
    waiting = m.engine.waiting.size
    assert waiting >= 1
    with pytest.raises(Refused, match="queue is full"):
        m.add("d")
    assert m.engine.waiting.size == waiting
    m.drain()
    assert [r.base for r in requests] == [9, 9, 9]


@both_loops
def test_a_live_id_is_taken_and_the_first_goes_on(overlap: bool) -> None:
    m = Machine(overlap=overlap)
    first = m.add("same", output=5)
    other = m.add("other", output=5)
    with pytest.raises(DuplicateId, match="request same: an earlier one with this id has not ended"):
        m.add("same")
    m.step()
    with pytest.raises(DuplicateId):
        m.add("same", prompt=99999)
    m.drain()
    assert (first.base, other.base) == (5, 5)
    again = m.add("same", output=3)
    m.drain()
    assert again.base == 3
    assert len(m.ended) == 3


@both_loops
def test_refusals_leave_nothing_behind(overlap: bool) -> None:
    policy = Script(lambda view: Decision(admit=view.waiting))
    m = Machine(policy, overlap=overlap, max_waiting=3)
    for prompt, limit in ((0, None), (4096, None), (4, 0), (4, -1), (99999, 1)):
        with pytest.raises(Refused):
            m.add(prompt=prompt, max_tokens=limit)
    assert (m.engine.live, m.engine.waiting.size, policy.log) == ({}, 0, [])
    assert m.engine.view.waiting_of("t") == 0
    good = m.add(output=3)
    m.drain()
    assert good.base == 3
    assert m.engine.journal.requests.frame()["state"].tolist() == [2] * 5 + [0]


def test_preempted_requests_wait_in_their_old_places() -> None:
    m = Machine(Script(), max_num_seqs=3)
    names = ["a", "b", "c", "d", "e"]
    for name in names:
        m.add(name, output=20)
    m.step()
    m.engine.begin(m.now)
    for name in ("c", "a"):
        m.engine.preempt(m.engine.live[name])
    assert [r.id for r in m.engine.view.waiting] == ["a", "c", "d", "e"]
    m.add("f")
    assert [r.id for r in m.engine.view.waiting] == ["a", "c", "d", "e", "f"]
    m.engine.waiting.leave(m.engine.live["a"])
    oldest = m.engine.waiting.oldest()
    assert oldest is not None
    assert oldest.id == "c"
