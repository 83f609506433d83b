from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.api import PriorityPolicy


class ByPrediction(PriorityPolicy):
    needs = frozenset({"prediction"})

    def key(self, request, now):
        return (request.prediction.expected if request.prediction else 0.0,)


def rank(request):
    expected = request.prediction.expected if request.prediction else 0.0
    return (math.inf if math.isnan(expected) else expected, request.number)


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["arrive", "predict", "predict", "cancel", "admit", "preempt"]),
        st.integers(0, 10**6),
        st.sampled_from([1.0, 2.0, 3.0, 4.0, math.nan]),
    ),
    max_size=80,
)


@settings(deadline=None)
@given(OPERATIONS)
def test_the_walk_of_the_heap_is_the_sorted_queue(engine, operations):
    it = engine(ByPrediction())
    for what, pick, value in operations:
        waiting, running = list(it.waiting), list(it.running)
        if what == "arrive":
            it.arrive(predicted=value)
        elif what == "predict" and waiting:
            it.predict(waiting[pick % len(waiting)], value)
        elif what == "cancel" and waiting:
            it.end(waiting[pick % len(waiting)], "cancelled")
        elif what == "preempt" and running:
            it.preempt(running[pick % len(running)])
        elif what == "admit":
            expected = [r.id for r in sorted(waiting, key=rank)][: pick % 5]
            assert it.admit(pick % 5).split() == expected
        assert it.offered().split() == [r.id for r in sorted(it.waiting, key=rank)]


def test_a_key_that_comes_back_is_not_offered_twice(engine):
    it = engine(ByPrediction())
    first = it.arrive("a", 1.0)
    it.arrive("b", 2.0)
    it.predict(first, 3.0)
    it.predict(first, 1.0)
    assert it.offered() == "a b"


def test_requests_admitted_while_the_engine_pulls_upset_nobody(engine):
    it = engine(ByPrediction())
    for length in (5.0, 3.0, 8.0, 1.0, 9.0, 2.0, 7.0):
        it.arrive(str(int(length)), length)
    assert it.admit() == "1 2 3 5 7 8 9"
