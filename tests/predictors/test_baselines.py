from __future__ import annotations

import numpy as np
import pytest

from predictors.api import PredictionInput
from predictors.baselines import Baseline, Median, PromptLength, TenantAverage, TfidfRidge
from predictors.corpus import make_corpus


@pytest.fixture(scope="module")
def rows():
    return make_corpus(600).rows


def asked(text="x", tokens=10, tenant="plain", made=0):
    return PredictionInput("r", text, tokens, tenant, 0, 4096, made)


def test_the_median_is_the_median(rows):
    (answer,) = Baseline("median", Median(rows), rows).predict([asked()])
    assert answer.expected == pytest.approx(rows.length.median())
    assert np.mean(rows.length[~rows.capped] <= answer.upper) == pytest.approx(0.9, abs=0.01)
    assert answer.source == "median"


def test_the_average_is_of_the_tenants_last_rows(rows):
    predictor = Baseline("average", TenantAverage(rows, window=50), rows)
    terse, new = predictor.predict([asked(tenant="terse"), asked(tenant="new")])
    assert terse.expected == pytest.approx(rows.length[rows.tenant == "terse"][-50:].mean())
    assert new.expected == pytest.approx(rows.length[-50:].mean())


def test_a_power_law_of_the_prompt_is_found(rows):
    rows = rows.assign(prompt_tokens=np.arange(600), length=3 * (np.arange(600) + 1))
    predictor = Baseline("line", PromptLength(rows), rows)
    assert predictor.predict([asked(tokens=99)])[0].expected == pytest.approx(300, rel=0.01)


def test_words_are_learned_for_each_tenant(rows):
    predictor = Baseline("words", TfidfRidge(rows), rows)
    story, number = predictor.predict(
        [asked("Write a story about tea."), asked("Is tea hard to learn? Answer yes or no.")]
    )
    assert story.expected > 10 * number.expected


def test_tuned_a_sign_is_a_word_too(rows):
    signs = rows.assign(
        text=[f"about {text.split()[-1]} {'?' if i % 2 else '!'}" for i, text in enumerate(rows.text)],
        length=[20 + i % 7 if i % 2 else 400 + i % 7 for i in range(600)],
    )
    plain, tuned = (Baseline("words", TfidfRidge(signs, tuned), signs) for tuned in (False, True))
    first, second = (
        [a.expected for a in words.predict([asked("about tea !"), asked("about tea ?")])] for words in (plain, tuned)
    )
    assert first[0] == pytest.approx(first[1])
    assert second[0] > 2 * second[1]


def test_a_baseline_too_goes_beyond_what_was_made(rows):
    (answer,) = Baseline("median", Median(rows), rows).predict([asked(made=4000)])
    assert 4001 <= answer.expected <= answer.upper <= 4096
