"""What a decision may name, what the engine makes of it, and what it says of one that breaks the rules."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import pytest

from engine_by_hand import Machine, Script
from policies.api import Decision, EngineView, InvalidDecision, OracleNotDeclared, RequestView
from predictors.api import Prediction
from traffic_by_hand import MS

both_loops = pytest.mark.parametrize("overlap", [False, True], ids=["sync", "overlap"])


def view_of(m: Machine, name: str) -> RequestView:
    view = m.engine.live[name].view
    assert view is not None
    return view


def machine(**settings: Any) -> Machine:
    """`a` and `b` run, `c` and `d` wait, `e` has ended; its policy is to be told what to answer."""
    m = Machine(Script(preemptive=True), max_num_seqs=3, **settings)
    for name, output in (("a", 50), ("b", 50), ("e", 1)):
        m.add(name, output=output)
    ended = view_of(m, "e")
    m.step()
    m.step()
    m.add("c", output=3)
    m.add("d", output=3)
    views = {name: view_of(m, name) for name in "abcd"} | {"e": ended}
    views["stranger"] = view_of(other := Machine(), other.add("a").id)
    m.policy.views = views
    return m


def answer(m: Machine, **decision: Any) -> None:
    """The decision, with names of requests in place of their views."""
    views = m.policy.views
    for key, names in decision.items():
        if key in ("admit", "preempt"):
            decision[key] = [views.get(name, name) for name in names]
        elif key == "reject":
            decision[key] = [(views.get(name, name), "because") for name in names]
    m.policy.answer = lambda view: Decision(**decision)


@both_loops
@pytest.mark.parametrize(
    ("decision", "message"),
    [
        ({"admit": ["a"]}, "Script wants to admit request a: it runs already, or was named twice"),
        ({"admit": ["c", "c"]}, "Script wants to admit request c: it runs already, or was named twice"),
        ({"admit": ["e"]}, "Script wants to admit request e: it has ended, or is of another run"),
        ({"admit": ["stranger"]}, "Script wants to admit request a: it has ended, or is of another run"),
        ({"admit": ["name"]}, "Script wants to admit request 'name': it has ended, or is of another run"),
        ({"reject": ["a"]}, "Script wants to reject request a: it runs already, or was named twice"),
        ({"reject": ["c", "c"]}, "Script wants to reject request c: it has ended, or is of another run"),
        ({"reject": ["c"], "admit": ["c"]}, "Script wants to admit request c: it has ended, or is of another run"),
        ({"preempt": ["c"]}, "Script wants to preempt request c: it does not run, or was named twice"),
        ({"preempt": ["a", "a"]}, "Script wants to preempt request a: it does not run, or was named twice"),
        ({"preempt": ["e"]}, "Script wants to preempt request e: it has ended, or is of another run"),
    ],
)
def test_what_may_not_be_named(decision: dict[str, Any], message: str, overlap: bool) -> None:
    m = machine(overlap=overlap)
    answer(m, **decision)
    with pytest.raises(InvalidDecision) as error:
        m.step()
    assert str(error.value) == message


def test_one_named_twice_that_does_not_fit_is_named_too() -> None:
    """Else one that is yielded for ever, and passed over for ever, would hang the engine."""
    m = Machine(Script(), blocks=8)
    m.add("small", prompt=50)
    m.step()
    big = m.add("big", prompt=100)
    m.policy.answer = lambda view: Decision(admit=repeat(big.view), skip_blocked=True)
    with pytest.raises(InvalidDecision, match="Script wants to admit request big: it was named twice"):
        m.plan()


def test_each_part_is_checked_before_anything_changes_for_it() -> None:
    """What came before a bad name has happened; the bad one and all after have not."""
    m = machine()
    answer(m, preempt=["b", "c", "a"])
    with pytest.raises(InvalidDecision, match="preempt request c"):
        m.step()
    assert [m.engine.live[name].preemptions for name in "abc"] == [0, 1, 0]


@both_loops
def test_preempt_reject_and_admit_in_one_decision(overlap: bool) -> None:
    m = machine(overlap=overlap)
    answer(m, preempt=["a"], reject=["c"], admit=["d"])
    batch = m.plan()
    assert batch is not None
    assert {r.id for r in batch.decodes} == {"b"}
    assert m.engine.live["a"].preemptions == 1
    assert [(r.id, r.state, r.detail) for r in m.ended[1:]] == [("c", "rejected", "because")]
    m.policy.answer = lambda view: Decision(admit=view.waiting)
    m.drain()
    assert sorted(r.base for r in m.ended) == [0, 1, 3, 50, 50]
    log = m.policy.log
    assert log.index("preempt a") < log.index("rejected c") < log.index("admit d")


def test_the_head_of_the_line_blocks_unless_it_is_skipped() -> None:
    def run(skip: bool) -> list[str]:
        m = Machine(Script(lambda view: Decision(admit=view.waiting, skip_blocked=skip)), blocks=8)
        m.add("fits", prompt=60, output=5)
        m.add("too big for now", prompt=100)
        m.add("small", prompt=10)
        m.add("also too big", prompt=90)
        m.add("smaller", prompt=5)
        batch = m.plan()
        assert batch is not None
        return [chunk.member.id for chunk in batch.chunks]

    assert run(skip=False) == ["fits"]
    assert run(skip=True) == ["fits", "small", "smaller"]


def test_admissions_are_pulled_lazily_and_no_further_than_they_fit() -> None:
    pulled: list[str] = []

    def lazy(view: EngineView) -> Decision:
        def walk() -> Iterator[RequestView]:
            for request in list(view.waiting):
                pulled.append(request.id)
                assert [r.id for r in view.running] == pulled[:-1], "the one before was admitted before the next pull"
                yield request

        return Decision(admit=walk())

    m = Machine(Script(lazy), max_num_seqs=2)
    for name in "abcd":
        m.add(name)
    m.step()
    assert pulled == ["a", "b", "c"], "the third shows that the answer was cut short"


def test_the_live_views_can_be_handed_back_as_they_are() -> None:
    m = Machine(Script(lambda view: Decision(admit=view.waiting)))
    for _ in range(5):
        m.add(output=20)
    batch = m.plan()
    assert batch is not None
    assert len(batch.chunks) == 5
    m.commit()
    m.policy.answer = lambda view: Decision(preempt=view.running, admit=view.waiting)
    m.add("last", output=1)
    batch = m.plan()
    assert batch is not None
    assert [chunk.member.id for chunk in batch.chunks] == ["last"]
    m.policy.answer = lambda view: Decision(admit=view.waiting)
    m.commit()
    assert m.drain() == 5 * 19


@both_loops
def test_hold_until_admits_nobody_but_preempts_and_rejects(overlap: bool) -> None:
    m = machine(overlap=overlap)
    answer(m, preempt=["a"], reject=["c"], admit=["d"], hold_until=m.now + 1000 * MS)
    m.plan()
    assert (m.engine.live["a"].preemptions, m.engine.waiting.size) == (1, 2)
    assert m.engine.wake_at() == m.engine.asking.hold_until


def test_a_hold_that_is_over_admits() -> None:
    m = machine()
    answer(m, admit=["c"], hold_until=m.now)
    batch = m.plan()
    assert batch is not None
    assert [chunk.member.id for chunk in batch.chunks] == ["c"]


def test_the_true_length_is_told_only_to_a_policy_that_declares_the_oracle() -> None:
    m = Machine(Script(lambda view: Decision(admit=sorted(view.waiting, key=lambda r: r.true_output_tokens))))
    m.add("r")
    with pytest.raises(
        OracleNotDeclared, match=r'Script read the true length of request r; .* frozenset\({"oracle"}\)'
    ):
        m.step()


@pytest.mark.parametrize("asked", [None, 0, -5, 7, 10**9])
def test_a_reservation_is_between_one_token_and_max_tokens(asked: int | None) -> None:
    """Of a prompt of 5 and up to 20 tokens: 5 + reservation - 1 tokens of KV, in blocks of one."""

    class Reserving(Script):
        def reservation(self, request: RequestView) -> int | None:
            return asked

    m = Machine(Reserving(), admission="reserve", block_size=1, blocks=100)
    request = m.add(prompt=5, output=20, max_tokens=20)
    m.plan()
    reserved = {None: 20, 0: 1, -5: 1, 7: 7, 10**9: 20}[asked]
    assert len(request.table) == max(5, 5 + reserved - 1)
    m.commit()
    assert m.drain() == 19, "past its reservation it grows block by block"


def hooks(m: Machine) -> list[str]:
    log = m.policy.log
    assert isinstance(log, list)
    return log


@both_loops
def test_a_policy_is_told_everything_once_and_in_order(overlap: bool) -> None:
    m = Machine(Script(), overlap=overlap, blocks=4, block_size=4, max_num_seqs=3)
    m.add("a", prompt=3, output=9)
    m.add("b", prompt=3, output=9, prediction=Prediction(9, 9, "test"))
    gone = m.add("gone")
    m.cancel(gone)
    m.add("c", prompt=3, output=9)
    m.drain()
    told = hooks(m)
    assert told[:5] == ["arrival a", "arrival b", "prediction b", "arrival gone", "cancelled gone"]
    for name in "abc":
        own = [line.split()[0] for line in told if line.endswith(f" {name}") and "prediction" not in line]
        again = (len(own) - 3) // 2
        assert own == ["arrival", "admit", *["preempt", "admit"] * again, "completed"]
    assert sum(line.startswith("preempt") for line in told) >= 1
