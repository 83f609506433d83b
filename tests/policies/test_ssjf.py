from __future__ import annotations

import math

from policies.ssjf import SSJF
from predictors.api import Prediction


def test_the_shortest_predicted_goes_first_and_the_unpredicted_last(engine):
    it = engine(SSJF())
    it.arrive("unknown")
    it.arrive("long", predicted=300)
    it.arrive("short", predicted=3)
    it.arrive("middle", predicted=30)
    it.arrive("also short", predicted=3)
    it.arrive("odd", predicted=math.nan)
    assert it.offered() == "short also short middle long unknown odd"


def test_a_new_prediction_moves_a_request_that_waits(engine):
    it = engine(SSJF())
    first, _ = it.arrive("a", predicted=10), it.arrive("b", predicted=20)
    it.predict(first, 30)
    assert it.offered() == "b a"


def test_it_holds_what_the_upper_bound_says(engine):
    policy = SSJF()
    request = engine(policy).arrive(max_tokens=100)
    assert policy.reservation(request) is None
    for upper, held in ((40.2, 41), (99, 99), (100, None), (math.inf, None), (math.nan, None)):
        request.prediction = Prediction(30, upper, "test")
        assert policy.reservation(request) == held
    assert policy.needs == {"prediction"}
