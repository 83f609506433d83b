from __future__ import annotations

from collections import Counter

import pytest

from policies.api import Served
from policies.fair_share import FairShare


def dispatched(it, slots_at_once, total=20):
    """Tenants of the next `total` admissions, in order; every one ends before the next decision."""
    tenants = []
    while len(tenants) < total:
        it.admit(min(slots_at_once, total - len(tenants)))
        for request in list(it.running):
            tenants.append(request.tenant)
            request.computed_tokens, request.output_tokens = request.prompt_tokens, 1
            it.end(request)
    return tenants


def backlog(it, tenant, requests=30, **given):
    for _ in range(requests):
        it.arrive(tenant=tenant, **{"prompt_tokens": 10, **given})


at_once = pytest.mark.parametrize("slots_at_once", [1, 7, 20])


@at_once
def test_a_newcomer_shares_equally_with_one_who_was_served_10000(engine, slots_at_once):
    it = engine(FairShare())
    backlog(it, "a")
    it.tally["a"] = Served(0, 5000)
    backlog(it, "b")
    assert Counter(dispatched(it, slots_at_once)) == {"a": 10, "b": 10}


@at_once
def test_a_newcomer_among_three_busy_and_one_who_left(engine, slots_at_once):
    """The one whose only request was cancelled has the least counter of all, and must not pull the newcomer down."""
    it = engine(FairShare())
    gone = it.arrive(tenant="gone")
    for tenant in ("a", "b", "c"):
        backlog(it, tenant)
        it.tally[tenant] = Served(0, 5000)
    it.end(gone, "cancelled")
    backlog(it, "new")
    counts = Counter(dispatched(it, slots_at_once))
    assert counts["new"] == 5
    assert all(4 <= counts[tenant] <= 6 for tenant in ("a", "b", "c"))


def test_nobody_saves_up_service_while_away(engine):
    it = engine(FairShare())
    backlog(it, "back", requests=1)
    dispatched(it, 1, total=1)
    backlog(it, "a")
    it.tally["a"] = Served(0, 5000)
    backlog(it, "back")
    assert Counter(dispatched(it, 1))["back"] == 10


def test_when_nobody_waits_the_lift_is_to_whose_queue_emptied_last(engine):
    it = engine(FairShare())
    backlog(it, "a", requests=1)
    it.admit()
    it.tally["a"] = Served(10, 500)  # 10 of its prompt, 1,000 of output
    backlog(it, "b")  # lifted to 1,010, where a is now
    backlog(it, "a")
    assert Counter(dispatched(it, 1)) == {"a": 10, "b": 10}


def test_the_lift_takes_nothing_from_who_has_more(engine):
    it = engine(FairShare())
    it.tally["a"] = Served(0, 50)  # counter 100
    backlog(it, "b")
    backlog(it, "a")
    # b pays 10 a request: ten of its own before the counters meet, then b, whose requests are older, and a in turn
    assert dispatched(it, 1, total=13) == ["b"] * 11 + ["a", "b"]


def test_prompt_and_output_weigh_as_told(engine):
    it = engine(FairShare(w_prompt=3, w_output=5))
    backlog(it, "a", prompt_tokens=10)
    backlog(it, "b", prompt_tokens=30)
    it.tally["a"] = Served(0, 12)  # 60
    # a, b: 60, 0 -> b 90 -> a 90 -> tie, a is older: 120 -> b 180 -> a 150 -> a 180 -> tie, a: 210
    assert dispatched(it, 1, total=7) == ["b", "a", "a", "b", "a", "a", "a"]


@at_once
def test_service_is_divided_by_weight(engine, slots_at_once):
    it = engine(FairShare())
    for number, tenant in enumerate("abcd", start=1):
        backlog(it, tenant, weight=number)
    counts = Counter(dispatched(it, slots_at_once))
    assert [counts[tenant] for tenant in "abcd"] == [2, 4, 6, 8]


def test_a_lift_is_in_proportion_to_the_weight(engine):
    it = engine(FairShare())
    backlog(it, "a", weight=0.1)
    it.tally["a"] = Served(0, 35)  # 70 / 0.1 = 700
    backlog(it, "b", weight=0.3)  # lifted to 210
    it.arrive("c", tenant="c", weight=1.0)  # lifted to 700
    # a, b and c are level; a (10 / 0.1 = 100 a request) and b (33.3) go first as the older, then c before any of b
    assert dispatched(it, 20, total=4) == ["a", "b", "c", "b"]


def test_the_oldest_of_a_tenant_goes_first_and_a_preempted_one_keeps_its_place(engine):
    it = engine(FairShare())
    for name in ("a1", "a2", "a3"):
        it.arrive(name, tenant="a")
    assert it.admit(2) == "a1 a2"
    first, second = it.running
    it.preempt(first)
    it.preempt(second)
    assert it.offered() == "a1 a2 a3"


def test_a_readmission_is_not_charged_again(engine):
    it = engine(FairShare())
    backlog(it, "a", requests=1, prompt_tokens=100)
    it.admit()
    it.preempt(next(it.running))
    backlog(it, "b", prompt_tokens=30)
    backlog(it, "a", prompt_tokens=100)
    # a has 100, b is lifted to that; a's preempted request is the oldest, and free
    assert [r.tenant for r in it.policy.decide(it).admit][:6] == ["a", "b", "a", "b", "b", "b"]


def test_a_tenant_with_only_a_preempted_request_waits_again(engine):
    it = engine(FairShare())
    it.arrive("a1", tenant="a")
    it.admit()
    it.preempt(next(it.running))
    assert it.admit() == "a1"


def begun(it, predicted=None, **given):
    request = it.arrive(tenant="a", predicted=predicted, **{"prompt_tokens": 10, **given})
    it.admit()
    return request


@pytest.mark.parametrize("computed", [0, 40, 100])
def test_what_was_never_executed_of_a_prompt_is_given_back(engine, computed):
    policy = FairShare()
    it = engine(policy)
    request = begun(it, prompt_tokens=100)
    assert policy.counter("a", it) == 100
    request.computed_tokens = computed
    it.end(request, "cancelled")
    assert policy.counter("a", it) == computed


def test_one_cancelled_while_it_waits_was_never_charged(engine):
    policy = FairShare()
    it = engine(policy)
    request = it.arrive(tenant="a", prompt_tokens=100)
    it.end(request, "cancelled")
    assert policy.counter("a", it) == 0


def test_nothing_is_given_back_for_recomputing(engine):
    """Preempted after its first token: the prompt was executed, though none of it is computed now."""
    policy = FairShare()
    it = engine(policy)
    request = begun(it, prompt_tokens=100)
    request.output_tokens = 1
    it.preempt(request)
    it.end(request, "cancelled")
    assert policy.counter("a", it) == 100


def test_a_predicted_output_is_charged_ahead_and_the_rest_given_back(engine):
    policy = FairShare(use_predictions=True)
    assert policy.needs == {"prediction"}
    it = engine(policy)
    request = begun(it, predicted=50)
    assert policy.counter("a", it) == 10 + 2 * 50
    request.output_tokens = 20
    assert policy.counter("a", it) == 10 + 2 * 50
    it.end(request)
    assert policy.counter("a", it) == 10 + 2 * 20


def test_tokens_beyond_the_prediction_are_charged_one_by_one(engine):
    policy = FairShare(use_predictions=True)
    it = engine(policy)
    request = begun(it, predicted=50)
    request.output_tokens = 51
    it.predict(request, 200)
    assert policy.counter("a", it) == 10 + 2 * 51
    request.output_tokens = 60
    assert policy.counter("a", it) == 10 + 2 * 60
    it.preempt(request)
    assert policy.counter("a", it) == 10 + 2 * 60
    it.admit()
    it.end(request)
    assert policy.counter("a", it) == 10 + 2 * 60


def test_without_a_prediction_each_token_is_charged_as_it_is_made(engine):
    policy = FairShare(use_predictions=True)
    it = engine(policy)
    request = begun(it)
    request.output_tokens = 7
    assert policy.counter("a", it) == 10 + 2 * 7


def test_a_prediction_is_charged_up_to_max_tokens(engine):
    policy = FairShare(use_predictions=True)
    it = engine(policy)
    begun(it, predicted=1e9, max_tokens=100)
    assert policy.counter("a", it) == 10 + 2 * 100


def test_predictions_charged_within_one_decision(engine):
    """a's requests are predicted at 45 tokens, so one of them (10 + 90) is worth ten of b's (10 + 0)."""
    it = engine(FairShare(use_predictions=True))
    backlog(it, "a", predicted=45)
    backlog(it, "b", predicted=float("nan"))
    assert Counter(r.tenant for r in list(it.policy.decide(it).admit)[:22]) == {"a": 2, "b": 20}


@pytest.mark.parametrize("given", [{"w_prompt": -1}, {"w_output": 1.5}])
def test_bad_weights_are_named(given):
    with pytest.raises(ValueError, match=f"fair_share.{next(iter(given))}"):
        FairShare(**given)
