"""What holds for each of the policies that ship."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.fair_share import FairShare
from policies.fcfs import FCFS
from policies.multi_bin import MultiBin
from policies.oracle_length import OracleLength

POLICIES = {
    "fcfs": FCFS,
    "oracle_length": OracleLength,
    "fair_share": FairShare,
    "fair_share_predicted": lambda: FairShare(use_predictions=True),
    "multi_bin": lambda: MultiBin(batch_size=3, max_wait_s=1),
    "multi_bin_by_bin": lambda: MultiBin(batch_size=3, max_wait_s=1, order="bin_by_bin", history=5),
}
LATER = 2 * 10**12

each_policy = pytest.mark.parametrize("make", POLICIES.values(), ids=POLICIES.keys())


@each_policy
@pytest.mark.parametrize("predicted", [100.0, math.nan, None])
def test_a_hundred_equal_requests_go_in_order_of_submission(engine, make, predicted):
    it = engine(make())
    for _ in range(100):
        it.arrive(tenant="t", predicted=predicted)
    it.now = LATER
    assert it.admit() == " ".join(str(n) for n in range(1, 101))


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["arrive", "arrive", "predict", "cancel", "admit", "preempt", "complete", "wait"]),
        st.integers(0, 10**6),
        st.sampled_from([1.0, 10.0, 20.0, 30.0, 40.0, math.nan, math.inf]),
    ),
    max_size=60,
)


@each_policy
@pytest.mark.parametrize("batching", ["continuous", "static"])
@settings(max_examples=50, deadline=None)
@given(operations=OPERATIONS)
def test_whatever_happens_everybody_who_waits_is_offered_once(engine, make, batching, operations):
    it = engine(make(), slots=8, batching=batching)
    for what, pick, value in operations:
        waiting, running = list(it.waiting), list(it.running)
        everybody = waiting + running
        if what == "arrive":
            it.arrive(tenant="abc"[pick % 3], predicted=value if pick % 2 else None, prompt_tokens=1 + pick % 7)
        elif what == "predict" and everybody:
            it.predict(everybody[pick % len(everybody)], value)
        elif what == "cancel" and everybody:
            it.end(everybody[pick % len(everybody)], "cancelled")
        elif what == "admit":
            it.admit(pick % 9)
        elif what == "preempt" and running:
            it.preempt(running[pick % len(running)])
        elif what == "complete" and running:
            done = running[pick % len(running)]
            done.output_tokens = 1
            it.end(done)
        elif what == "wait":
            it.now += 10**11
        offered = it.offered()
        assert offered == it.offered(), "decide asked twice answers the same"
        assert len(set(offered.split())) == len(offered.split())
        assert set(offered.split()) <= {r.id for r in it.waiting}
    while it.active:
        it.end(next(it.running))
    it.now += LATER
    while it.queue:
        assert it.admit(), "after the longest wait something goes whenever slots are free"
        while it.active:
            it.end(next(it.running))
