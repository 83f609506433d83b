"""A predictor that misbehaves, in a whole run: the run goes on, and what was wrong is counted.

What a text or a model file may be is in tests/predictors (test_learned, test_store); a predictor that sleeps is in
tests/backend/test_serving_predictions, since in virtual time nobody waits for one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from policies.api import Policy
from policies.fair_share import FairShare
from policies.multi_bin import MultiBin
from policies.ssjf import SSJF
from predictors.api import Prediction, PredictionInput, Predictor
from predictors.corpus import make_corpus
from predictors.guard import Guarded
from predictors.learned import LearnedConfig, LearnedPredictor
from predictors.training import fit
from traffic_by_hand import run, traffic

POLICIES: dict[str, Callable[[], Policy]] = {
    "multi_bin": MultiBin,
    "ssjf": SSJF,
    "fair_share": lambda: FairShare(use_predictions=True),
}
every_user = pytest.mark.parametrize("make", POLICIES.values(), ids=POLICIES.keys())


class Misbehaves(Predictor):
    def __init__(self, said: Any) -> None:
        self.said = said

    def predict(self, inputs: Sequence[PredictionInput]) -> list[Prediction]:
        if isinstance(self.said, Exception):
            raise self.said
        if self.said is None:
            return None  # type: ignore[return-value]
        return [Prediction(self.said, self.said, "said") for _ in inputs]


@every_user
@pytest.mark.parametrize(
    ("said", "replaced", "failed"),
    [
        (math.nan, True, False),
        (math.inf, True, False),
        (-40.0, False, False),
        (0.0, False, False),
        (1e9, False, False),
        (None, True, True),
        (RuntimeError("no model"), True, True),
    ],
    ids=str,
)
def test_the_run_goes_on_whatever_is_predicted(
    make: Callable[[], Policy], said: Any, replaced: bool, failed: bool
) -> None:
    guard = Guarded(Misbehaves(said), fallback=40)
    requests = run(
        traffic(4, [3, 30, 60, 9] * 10, arrival=[i * 10**9 for i in range(40)], max_tokens=100),
        make(),
        max_num_seqs=4,
        predictor=guard,
    ).records.requests
    assert set(requests["state"]) == {"completed"}
    assert list(requests["output_tokens"]) == [3, 30, 60, 9] * 10
    assert requests["predicted_tokens"].between(1, 100).all()
    counts = guard.counts
    assert counts.predictions >= 40
    assert counts.fallbacks == (counts.predictions if replaced else 0)
    assert counts.errors == (counts.calls if failed else 0)
    assert counts.clipped == (0 if replaced else counts.predictions)


@pytest.fixture(scope="module")
def learned() -> LearnedPredictor:
    return fit(make_corpus(600).rows, LearnedConfig(rounds=40, topics=10, calibration=200))


@every_user
def test_a_run_of_requests_of_which_nothing_is_known(make: Callable[[], Policy], learned: LearnedPredictor) -> None:
    """No text and an unseen tenant: all are fallbacks, and some outrun them by far."""
    guard = Guarded(learned, fallback=40)
    work = traffic(4, [3, 2000, 60, 9], max_tokens=3000, tenants=("nobody has seen",))
    requests = run(work, make(), max_num_seqs=2, predictor=guard).records.requests
    assert set(requests["state"]) == {"completed"}
    assert (requests["predicted_tokens"] >= 1).all()
    assert guard.counts.predictions > 4, "asked again"
    assert guard.counts.fallbacks == guard.counts.predictions, "flagged by the predictor itself"
    assert guard.counts.errors == 0
