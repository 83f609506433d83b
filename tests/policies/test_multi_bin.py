from __future__ import annotations

import math

import pytest

from policies.api import Limits
from policies.multi_bin import MultiBin

SECOND = 10**12


def two_bins(**given):
    """Short up to 10 tokens, long beyond; batches of two."""
    return MultiBin(**{"bins": 2, "edges": [10], "batch_size": 2, "max_wait_s": 5, **given})


def test_batches_go_in_the_order_formed(engine):
    it = engine(two_bins())
    for name, predicted in (("L1", 90), ("s1", 5), ("s2", 6), ("L2", 80), ("s3", 7), ("L3", 70)):
        it.arrive(name, predicted)
    assert it.offered() == "s1 s2 L1 L2"


def test_bin_by_bin_the_shorter_go_first(engine):
    it = engine(two_bins(order="bin_by_bin"))
    for name, predicted in (("L1", 90), ("L2", 80), ("s1", 5), ("s2", 6), ("L3", 70), ("L4", 70), ("s3", 1), ("s4", 1)):
        it.arrive(name, predicted)
    assert it.offered() == "s1 s2 s3 s4 L1 L2 L3 L4"


@pytest.mark.parametrize("batching", ["static", "dynamic"])
def test_a_closed_batch_is_one_formed_batch(engine, batching):
    it = engine(two_bins(), slots=6, batching=batching)
    for name, predicted in (("L1", 90), ("s1", 5), ("s2", 6), ("L2", 80)):
        it.arrive(name, predicted)
    assert it.admit() == "s1 s2"
    assert it.admit() == "L1 L2"
    assert it.admit() == ""


def test_a_partial_bin_goes_when_its_oldest_has_waited(engine):
    it = engine(two_bins())
    it.arrive("s1", 5)
    it.now = SECOND
    it.arrive("L1", 90)
    decision = it.policy.decide(it)
    assert list(decision.admit) == []
    assert decision.revisit_at == 5 * SECOND
    it.now = 5 * SECOND - 1
    assert it.offered() == ""
    it.now = 5 * SECOND
    assert it.policy.decide(it).revisit_at == 6 * SECOND
    assert it.admit() == "s1"
    it.now = 6 * SECOND
    assert it.admit() == "L1"
    assert it.policy.decide(it).revisit_at is None


def test_a_partial_bin_counts_as_formed_when_it_falls_due(engine):
    it = engine(two_bins())
    it.arrive("s1", 5)
    it.now = 4 * SECOND
    it.arrive("L1", 90), it.arrive("L2", 90)
    it.now = 6 * SECOND
    it.arrive("L3", 90), it.arrive("L4", 90)
    assert it.offered() == "L1 L2 s1 L3 L4"


def test_the_rest_of_a_released_bin_stays_a_batch(engine):
    it = engine(two_bins(batch_size=3), slots=1)
    it.arrive("s1", 5)
    it.now = 4 * SECOND
    it.arrive("s2", 5)
    it.now = 6 * SECOND
    for name in ("L1", "L2", "L3"):
        it.arrive(name, 90)
    assert it.admit() == "s1", "due since 5 s"
    it.arrive("s3", 5)
    it.end(next(it.running))
    assert it.admit() == "s2", "though it has waited two seconds only, and a batch was formed before s1 went"
    it.end(next(it.running))
    assert it.offered() == "L1 L2 L3", "s3 belongs to the next batch of its bin"


def test_the_rest_of_a_formed_batch_goes_first(engine):
    it = engine(two_bins(), slots=1)
    for name, predicted in (("s1", 5), ("L1", 90), ("s2", 5), ("L2", 90)):
        it.arrive(name, predicted)
    assert it.admit() == "s1"
    it.end(next(it.running))
    assert it.admit() == "s2"


def test_a_new_prediction_moves_a_request_that_waits_in_a_bin(engine):
    it = engine(two_bins())
    moved = it.arrive("moved", 5)
    it.predict(moved, 90)
    it.arrive("s1", 5)
    assert it.offered() == ""
    it.arrive("L1", 90)
    assert it.offered() == "moved L1"


def test_a_formed_batch_stays_as_formed(engine):
    it = engine(two_bins())
    first = it.arrive("s1", 5)
    it.arrive("s2", 5)
    it.predict(first, 90)
    it.arrive("L1", 90)
    assert it.offered() == "s1 s2"
    it.admit(1)
    it.predict(first, 95)
    assert it.offered() == "s2"


def test_nan_belongs_to_the_last_bin_and_the_unpredicted_wait_apart(engine):
    it = engine(two_bins())
    it.arrive("nan", math.nan)
    it.arrive("none")
    it.arrive("later")
    assert it.offered() == ""
    it.arrive("L1", 90)
    assert it.offered() == "nan L1"
    it.predict(next(r for r in it.waiting if r.id == "later"), 5)
    it.arrive("s1", 5)
    assert it.offered() == "nan L1 later s1"
    it.now = 5 * SECOND
    assert it.offered() == "nan L1 later s1 none"


def test_the_preempted_go_ahead_in_order_of_arrival(engine):
    it = engine(two_bins(), slots=4)
    for name in ("s1", "s2", "s3", "s4", "s5", "s6"):
        it.arrive(name, 5)
    assert it.admit() == "s1 s2 s3 s4"
    for request in list(it.running)[2:0:-1]:
        it.preempt(request)
    assert it.offered() == "s2 s3 s5 s6"
    assert it.admit(1) == "s2"


def test_the_preempted_lead_the_next_closed_batch(engine):
    it = engine(two_bins(), slots=2, batching="static")
    for name in ("s1", "s2", "s3", "s4", "s5"):
        it.arrive(name, 5)
    assert it.admit() == "s1 s2"
    _, second = it.running
    it.preempt(second)
    it.end(next(it.running))
    assert it.offered() == "s2 s3 s4"
    assert it.admit() == "s2 s3"
    for request in list(it.running):
        it.end(request)
    assert it.admit() == "s4", "the rest of the batch that gave way, though s5 would make it two"


def test_the_preempted_go_even_if_no_batch_is_ready(engine):
    it = engine(two_bins(), slots=2, batching="static")
    it.arrive("s1", 5), it.arrive("s2", 5)
    it.admit()
    it.preempt(next(it.running))
    assert it.offered() == "s1"


def test_the_cancelled_leave_bins_and_batches(engine):
    it = engine(two_bins())
    gone = [it.arrive(name, predicted) for name, predicted in (("s1", 5), ("L1", 90), ("L2", 90))]
    for request in gone:
        it.end(request, "cancelled")
    it.arrive("s2", 5)
    assert it.offered() == "", "one of the pair has gone"
    it.arrive("s3", 5)
    assert it.offered() == "s2 s3"


def test_a_reservation_is_the_upper_edge_of_the_bin(engine):
    policy = MultiBin(bins=3, edges=[10, 20, 30])
    it = engine(policy)
    reserved = [policy.reservation(it.arrive(predicted=p, max_tokens=25)) for p in (3, 10, 11, 21, 31, math.nan, None)]
    assert reserved == [10, 10, 20, None, None, None, None], "None is max_tokens, 25, which is less than 30"


def test_edges_from_past_predictions(engine):
    policy = MultiBin(bins=2, batch_size=2, history=4)
    it = engine(policy)
    for name, predicted in (("a", 1), ("b", 2), ("c", 100), ("d", 200)):
        it.arrive(name, predicted)
    # edges 1, 1, 2, 2: a is in the first bin, b, c and d in the second
    assert it.offered() == "b c"
    assert policy.reservation(it.arrive(predicted=2)) == 2


def test_the_exponential_rule_knows_the_batch_size(engine):
    policy = MultiBin(bins=5, edges="exponential", mean=10.0)
    it = engine(policy, slots=200)
    assert [policy.reservation(it.arrive(predicted=p)) for p in (5, 6, 13, 23, 41)] == [6, 13, 23, 41, None]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"bins": 0}, "multi_bin.bins"),
        ({"edges": "equal"}, "multi_bin.edges"),
        ({"edges": [10, 20]}, "multi_bin.edges"),
        ({"bins": 3, "edges": [20, 10]}, "multi_bin.edges"),
        ({"bins": 3, "edges": [0, 10]}, "multi_bin.edges"),
        ({"bins": 2, "edges": [math.nan]}, "multi_bin.edges"),
        ({"edges": "exponential"}, "multi_bin.mean"),
        ({"edges": "exponential", "mean": -1.0}, "multi_bin.mean"),
        ({"order": "random"}, "multi_bin.order"),
        ({"batch_size": 0}, "multi_bin.batch_size"),
        ({"max_wait_s": math.inf}, "multi_bin.max_wait_s"),
        ({"max_wait_s": -1}, "multi_bin.max_wait_s"),
        ({"history": 0}, "multi_bin.history"),
    ],
)
def test_bad_parameters_are_named(given, named):
    with pytest.raises(ValueError, match=named) as caught:
        MultiBin(**given)
    assert "\n" not in str(caught.value)


def test_a_batch_must_fit_the_engine():
    policy = MultiBin(batch_size=64)
    with pytest.raises(ValueError, match=r"multi_bin\.batch_size: 64 .* max_num_seqs = 32"):
        policy.reset(Limits("static", False, "optimistic", 32, 8192, 16, 1000, 4096), None)
