from __future__ import annotations

from policies.fcfs import FCFS


def test_in_order_of_arrival_and_a_preempted_request_keeps_its_place(engine):
    it = engine(FCFS())
    it.arrive("b", arrival=20)
    first = it.arrive("a", arrival=10)
    assert it.admit() == "a b"
    it.arrive("c", arrival=30)
    it.preempt(first)
    assert it.offered() == "a c"
