from __future__ import annotations

import numpy as np
import pytest

from predictors.corpus import DEGREES, NOISE, TENANTS, make_corpus
from predictors.score import tau_b
from predictors.split import prompt_key


def test_the_same_seed_makes_the_same_corpus():
    assert make_corpus(50, seed=3).rows.equals(make_corpus(50, seed=3).rows)
    assert not make_corpus(50, seed=3).rows.equals(make_corpus(50, seed=4).rows)


def test_one_prompt_varies_by_itself_about_as_much_as_its_mean():
    factors = np.exp(NOISE * np.random.default_rng(0).standard_t(DEGREES, (4000, 100)))
    assert np.mean(factors.std(axis=1) / factors.mean(axis=1)) == pytest.approx(1, abs=0.1)


def test_lengths_scatter_about_the_typical_one_as_said():
    corpus = make_corpus(20_000)
    off = np.log(corpus.rows.length / corpus.typical)[corpus.typical > 20]
    assert np.median(off) == pytest.approx(0, abs=0.02)
    assert off.std() == pytest.approx(NOISE * np.sqrt(DEGREES / (DEGREES - 2)), rel=0.05)
    assert (np.mean(corpus.rows.length <= corpus.typical)) == pytest.approx(0.5, abs=0.03)


def test_the_best_score_is_the_typical_lengths():
    corpus = make_corpus(3000)
    lengths = corpus.rows.length.to_numpy(dtype=float)
    best = tau_b(corpus.typical, lengths)
    assert 0.7 < best < 0.8
    blurred = corpus.typical * np.exp(np.random.default_rng(0).normal(0, 0.5, 3000))
    assert tau_b(blurred, lengths) < best - 0.03


def test_prompts_are_many_and_each_tenant_has_some():
    rows = make_corpus(3000).rows
    assert rows.text.map(prompt_key).nunique() > 2000
    assert set(rows.tenant) == set(TENANTS)
    assert rows.length.between(1, 4096).all()
    assert (rows.length[rows.capped] == 4096).all()
