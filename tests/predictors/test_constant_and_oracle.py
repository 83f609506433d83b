from __future__ import annotations

import math

import pytest

from predictors.api import PredictionInput, TruthNotDeclared
from predictors.constant import Constant
from predictors.oracle import Oracle


def asked(output_tokens=0, truth=None, max_tokens=1000):
    return PredictionInput("r", None, 10, "t", 0, max_tokens, output_tokens, truth)


def test_constant_doubles_until_it_exceeds_what_was_made():
    predictor = Constant(100)
    answers = predictor.predict([asked(made) for made in (0, 99, 100, 101, 200, 799, 800)])
    assert [a.expected for a in answers] == [100, 100, 200, 200, 400, 800, 1600]
    assert {a.upper for a in answers} == {1000}
    assert {a.source for a in answers} == {"constant"}


@pytest.mark.parametrize("tokens", [0, -1, math.nan, math.inf])
def test_constant_refuses_what_no_output_can_be(tokens):
    with pytest.raises(ValueError, match=r"constant\.tokens"):
        Constant(tokens)


def test_the_oracle_says_the_truth():
    (answer,) = Oracle().predict([asked(truth=123)])
    assert (answer.expected, answer.upper, answer.source) == (123, 123, "oracle")


def test_the_oracle_needs_the_truth():
    with pytest.raises(TruthNotDeclared, match="request r"):
        Oracle().predict([asked()])
