from __future__ import annotations

from functools import cache

import pytest

from predictors.api import PredictionInput
from predictors.corpus import Corpus, make_corpus
from predictors.learned import LearnedConfig, LearnedPredictor
from predictors.split import split_by_prompt
from predictors.training import fit

QUICK = {"rounds": 40, "topics": 10, "calibration": 400}


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    return make_corpus(2500, seed=1)


@pytest.fixture(scope="session")
def parts(corpus):
    """Training and test rows."""
    return split_by_prompt(corpus.rows, test=0.3, seed=1)


@pytest.fixture(scope="session")
def fitted(parts):
    """A predictor for an objective, fitted once."""
    return cache(lambda objective: fit(parts[0], LearnedConfig(objective=objective, **QUICK)))


@pytest.fixture(scope="session")
def learned(fitted) -> LearnedPredictor:
    return fitted("length")


@pytest.fixture(scope="session", params=["length", "rank", "class"])
def of_each_objective(request, fitted) -> LearnedPredictor:
    return fitted(request.param)


@pytest.fixture(scope="session")
def ask():
    def asked(text, made=0, max_tokens=4096, tenant="plain", prompt_tokens=12, arrival=0):
        return PredictionInput("r", text, prompt_tokens, tenant, arrival, max_tokens, made)

    return asked
