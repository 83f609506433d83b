"""When is a policy asked? When its answer could differ from the last one, and never otherwise."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine_by_hand import Machine, Script
from policies.api import Decision, EngineView
from policies.fcfs import FCFS
from predictors.api import Prediction
from traffic_by_hand import MS, run, traffic

both_loops = pytest.mark.parametrize("overlap", [False, True], ids=["sync", "overlap"])


def nobody(view: EngineView) -> Decision:
    return Decision()


def first(view: EngineView) -> Decision:
    return Decision(admit=list(view.waiting)[:1])


def asks_in(m: Machine, steps: int = 1) -> int:
    """How often the policy is asked in the next `steps`."""
    before = m.asked
    for _ in range(steps):
        m.step()
    return m.asked - before


def machine_with_one_running(
    answer: Callable[[EngineView], Decision] = nobody, **settings: int | bool | str
) -> Machine:
    """One request decodes, one waits, and the policy has been asked about it."""
    m = Machine(Script(lambda view: Decision(admit=view.waiting)), **settings)
    m.add("running", output=100)
    asks_in(m)
    m.policy.answer = answer
    m.add("waiting", output=3)
    assert asks_in(m) == 1
    return m


def test_not_if_nobody_waits() -> None:
    m = Machine()
    m.add(output=5)
    assert asks_in(m) == 1
    m.engine.asking.changed = True
    assert asks_in(m, 4) == 0


def test_not_if_nothing_changed() -> None:
    assert asks_in(machine_with_one_running(), 20) == 0


@pytest.mark.parametrize(("preemptive", "times"), [(False, 0), (True, 1)])
def test_without_a_free_slot_only_a_preemptive_policy(preemptive: bool, times: int) -> None:
    m = Machine(Script(preemptive=preemptive), max_num_seqs=1)
    m.add()
    asks_in(m)
    m.add()
    assert asks_in(m) == times
    assert asks_in(m, 5) == 0


def test_not_without_token_budget() -> None:
    """A prompt of 40 takes all of ten steps of 4 tokens; then one token is left over, and three to admit with."""
    m = Machine(max_num_batched_tokens=4, max_num_seqs=4)
    m.add(prompt=40, output=50)
    asks_in(m)
    m.add(prompt=4, output=2)
    assert asks_in(m, 9) == 0
    assert asks_in(m) == 1


def test_not_in_a_step_that_preempted_for_want_of_blocks() -> None:
    m = Machine(blocks=4, block_size=4, max_num_seqs=4)
    victim = [m.add(name, prompt=3, output=9) for name in "abc"][-1]
    while not victim.preemptions:
        asked = asks_in(m)
    assert asked == 0
    m.engine.asking.changed = False
    assert asks_in(m) == 0, "freed room and nothing else: it has changed"


def test_after_an_arrival() -> None:
    m = machine_with_one_running()
    m.add()
    assert asks_in(m) == 1


def test_after_a_finish() -> None:
    m = machine_with_one_running()
    m.engine.end(m.engine.live["running"], "completed", "stop")
    assert asks_in(m, 0) == 0
    m.plan()
    assert m.asked == 3


@both_loops
def test_after_a_cancel_of_one_who_waits_and_of_one_who_runs(overlap: bool) -> None:
    m = machine_with_one_running(overlap=overlap)
    m.add("third")
    asks_in(m, 3)
    m.cancel(m.engine.live["third"])
    assert asks_in(m, 3) == 1
    m.add("fourth", output=50)
    asks_in(m, 3)
    m.policy.answer = lambda view: Decision(admit=[r for r in view.waiting if r.id == "fourth"])
    m.add("fifth")
    asks_in(m, 3)
    before = m.asked
    m.cancel(m.engine.live["fourth"])
    asks_in(m, 4)
    assert m.asked - before == 1 + overlap, "at once, and when the room that it leaves is free"


def test_after_a_new_prediction() -> None:
    m = machine_with_one_running()
    m.engine.predict(m.engine.live["waiting"], Prediction(3, 3, "test"), m.now)
    assert asks_in(m, 5) == 1


def test_in_the_step_after_a_preemption() -> None:
    m = Machine(Script(nobody), blocks=4, block_size=4, max_num_seqs=4)
    m.policy.answer = lambda view: Decision(admit=view.waiting)
    victim = [m.add(name, prompt=3, output=9) for name in "abc"][-1]
    asks_in(m)
    m.policy.answer = nobody
    while not victim.preemptions:
        asked = asks_in(m)
    assert asked == 0
    assert [asks_in(m) for _ in range(3)] == [1, 0, 0]


@both_loops
def test_when_a_step_later_the_blocks_of_one_who_ended_are_free(overlap: bool) -> None:
    """6 blocks of 4; the first holds four. Under overlap its EOS is known a step before its blocks are free."""
    m = Machine(blocks=6, block_size=4, overlap=overlap, max_num_seqs=2)
    m.add("a", prompt=13, output=3)
    m.step()
    b = m.add("b", prompt=13, output=1)
    m.drain()
    assert b.base == 1


def test_when_a_hold_comes_due_and_on_events_before() -> None:
    times: list[int] = []

    def hold(view: EngineView) -> Decision:
        times.append(view.now // MS)
        return Decision(admit=view.waiting, hold_until=100 * MS)

    requests = run(traffic(4, 2, n=2, arrival=[0, 37 * MS]), Script(hold), overlap=False).records.requests
    assert times == [0, 37, 100]
    assert list(requests["first_token"]) == [115 * MS] * 2


def test_while_others_run_a_hold_comes_due_at_the_next_plan() -> None:
    times: list[int] = []

    def hold(view: EngineView) -> Decision:
        times.append(view.now // MS)
        return Decision(admit=view.waiting, hold_until=None if view.now < 10 * MS else 100 * MS)

    run(traffic(4, [30, 2], arrival=[0, 20 * MS]), Script(hold), overlap=False)
    assert times == [0, 30, 105], "steps end at 15, 30, 45, ..., 105"


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_after_as_many_steps_as_it_said(steps: int) -> None:
    m = machine_with_one_running(lambda view: Decision(revisit_steps=steps))
    wait = max(1, steps)
    assert [asks_in(m) for _ in range(2 * wait)] == [*[0] * (wait - 1), 1] * 2


def test_at_the_time_that_it_said() -> None:
    times: list[int] = []

    def later(view: EngineView) -> Decision:
        times.append(view.now // MS)
        return Decision(admit=view.waiting if view.now >= 50 * MS else (), revisit_at=view.now + 25 * MS)

    run(traffic(4, 2), Script(later))
    assert times == [0, 25, 50]


def test_a_new_answer_replaces_hold_and_revisits() -> None:
    times: list[int] = []

    def once(view: EngineView) -> Decision:
        times.append(view.now // MS)
        if view.now == 0:
            return Decision(hold_until=90 * MS, revisit_at=80 * MS, revisit_steps=1)
        return Decision(revisit_at=200 * MS) if view.now < 200 * MS else Decision(admit=view.waiting)

    run(traffic(4, 2, n=2, arrival=[0, 10 * MS]), Script(once))
    assert times == [0, 10, 200]


def test_again_if_its_answer_was_cut_short_by_slots_or_budget() -> None:
    m = Machine(max_num_batched_tokens=8, max_num_seqs=8)
    for _ in range(3):
        m.add(prompt=8, output=30)
    # 8 of the first | 1, 7 of the second | 1, 1, 6 of the third: nobody waits any more
    assert [asks_in(m) for _ in range(6)] == [1, 1, 1, 0, 0, 0]
    assert m.engine.waiting.size == 0


def test_not_again_if_the_head_of_the_line_found_no_blocks() -> None:
    m = Machine(blocks=4, max_num_seqs=8)
    m.add(prompt=40, output=8)
    asks_in(m)
    m.add(prompt=40)
    assert asks_in(m) == 1
    assert asks_in(m, 5) == 0


def test_static_only_while_the_batch_is_empty_and_full_or_final() -> None:
    m = Machine(FCFS(), batching="static", max_num_seqs=2)
    m.add(output=3)
    assert m.plan(more_to_come=True) is None
    assert m.asked == 0
    m.add(output=1)
    assert m.plan(more_to_come=True) is not None
    assert m.asked == 1
    m.commit()
    m.add()
    m.add()
    assert asks_in(m) == 0, "a slot is free, but the batch runs on"
    m.step()
    assert not m.engine.members.slots
    m.plan(more_to_come=True)
    assert m.asked == 2
    m.drain()
    m.add()
    m.plan(more_to_come=False)
    assert m.asked == 3


def test_dynamic_when_the_oldest_has_waited_even_if_it_was_asked_before() -> None:
    times: list[int] = []

    def picky(view: EngineView) -> Decision:
        times.append(view.now // MS)
        return Decision(admit=view.waiting if view.now >= 50 * MS else ())

    work = traffic(4, 2, n=2)
    requests = run(
        work, Script(picky), batching="dynamic", max_num_seqs=2, batch_timeout_s=0.05, overlap=False
    ).records.requests
    assert times == [0, 50]
    assert list(requests["first_token"]) == [65 * MS] * 2


def test_dynamic_waits_out_the_timeout_even_if_no_more_can_come() -> None:
    requests = run(
        traffic(4, 2), FCFS(), batching="dynamic", max_num_seqs=2, batch_timeout_s=0.05, overlap=False
    ).records.requests
    assert list(requests["first_token"]) == [65 * MS]
