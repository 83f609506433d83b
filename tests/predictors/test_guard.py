from __future__ import annotations

import math

import numpy as np
import pytest

from predictors.api import Prediction, PredictionInput, Predictor, TruthNotDeclared
from predictors.guard import Guarded
from predictors.oracle import Oracle


class Says(Predictor):
    """Answers every input with the next of `values`."""

    def __init__(self, *values):
        self.values = values
        self.seen = []

    def predict(self, inputs):
        self.seen += inputs
        return [v if v is None or isinstance(v, str | Prediction) else Prediction(v, v, "said") for v in self.values]


class Fails(Predictor):
    def predict(self, inputs):
        raise RuntimeError("no model")


class Peeks(Predictor):
    def predict(self, inputs):
        return [Prediction(i.true_output_tokens, 1, "peek") for i in inputs]


def asked(output_tokens=0, max_tokens=100, truth=30):
    return PredictionInput("r", None, 10, "t", 0, max_tokens, output_tokens, truth)


def ask(predictor, *requests, fallback=40):
    guard = Guarded(predictor, fallback)
    return guard, guard.predict(requests or [asked()])


@pytest.mark.parametrize(
    ("said", "made", "expected"),
    [(-40, 0, 1), (0, 0, 1), (0.5, 0, 1), (1e9, 0, 100), (7, 0, 7), (7, 6, 7), (7, 7, 8), (7, 50, 51), (7, 100, 100)],
)
def test_an_answer_is_clipped_to_what_can_still_be(said, made, expected):
    guard, (answer,) = ask(Says(said), asked(made))
    assert answer.expected == expected
    assert expected <= answer.upper <= 100
    assert answer.source == "said"
    assert guard.counts.clipped == (said != expected)
    assert guard.counts.fallbacks == guard.counts.errors == 0


def test_an_upper_is_clipped_to_between_expected_and_max_tokens():
    _, answers = ask(Says(Prediction(50, 20, "s"), Prediction(50, 500, "s")), asked(), asked())
    assert [(a.expected, a.upper) for a in answers] == [(50, 50), (50, 100)]


@pytest.mark.parametrize(
    "said",
    [
        math.nan,
        math.inf,
        -math.inf,
        None,
        "soon",
        Prediction("soon", 1, "s"),
        Prediction(None, 1, "s"),
        Prediction(10**400, 1, "s"),
        Prediction(5, math.nan, "s"),
        Prediction(5, 5, "s", score=math.nan),
        Prediction(5, 5, "s", probabilities=(0.5, math.nan)),
    ],
)
def test_an_unusable_answer_is_replaced_alone(said):
    guard, answers = ask(Says(7, said, 8), asked(), asked(), asked())
    assert [a.expected for a in answers] == [7, 40, 8]
    assert (answers[1].source, answers[1].upper) == ("fallback:Says", 100)
    assert (guard.counts.predictions, guard.counts.fallbacks, guard.counts.errors) == (3, 1, 0)


@pytest.mark.parametrize("predictor", [Fails(), Says(), Says(7), Says(7, 7, 7)])
def test_a_call_that_fails_or_miscounts_is_replaced_whole(predictor):
    guard, answers = ask(predictor, asked(), asked())
    assert [a.expected for a in answers] == [40, 40]
    assert (guard.counts.calls, guard.counts.fallbacks, guard.counts.errors) == (1, 2, 1)


def test_the_last_error_is_kept():
    assert ask(Fails())[0].counts.last_error == "RuntimeError: no model"
    assert ask(Says(1, 2))[0].counts.last_error == "2 answers to 1 inputs"


def test_the_fallback_too_exceeds_what_was_made_and_stays_within_max_tokens():
    answers = [ask(Fails(), asked(made))[1][0].expected for made in (0, 39, 40, 79, 80, 100)]
    assert answers == [40, 40, 80, 80, 100, 100]
    assert ask(Fails(), asked(max_tokens=5))[1][0].expected == 5


def test_numbers_of_numpy_are_numbers():
    _, answers = ask(Says(np.float32(7.5), np.int64(9)), asked(), asked())
    assert [a.expected for a in answers] == [7.5, 9]


def test_the_truth_goes_only_to_who_declares_it():
    says = Says(7)
    ask(says)
    assert [i.truth for i in says.seen] == [None]
    assert ask(Oracle())[1][0].expected == 30
    with pytest.raises(TruthNotDeclared):
        ask(Peeks())
