from __future__ import annotations

import numpy as np
import pytest

from predictors.api import Prediction, Predictor
from predictors.corpus import make_corpus
from predictors.score import BINS, bin_distance, clustered_error, pinball, score, tau_b


class Says(Predictor):
    def __init__(self, expected, upper=None, score=None):
        self.answers = [
            Prediction(float(e), float(e if upper is None else upper[i]), "said", None if score is None else score[i])
            for i, e in enumerate(expected)
        ]

    def predict(self, inputs):
        return self.answers


@pytest.fixture
def rows():
    return make_corpus(400).rows


def test_the_truth_scores_best(rows):
    figures = score(Says(rows.length), rows)
    assert figures["tau"] == pytest.approx(1)
    assert figures["mae"] == figures["pinball"] == 0
    assert figures["coverage"] == figures["coverage_at_least"] == 1
    assert all(figures[f"bins_{k}"] == 1 for k in BINS)


def test_tau_by_hand():
    assert tau_b(np.array([1.0, 2, 3, 4]), np.array([1.0, 2, 4, 3])) == pytest.approx(4 / 6)
    assert tau_b(np.array([1.0, 1, 2]), np.array([1.0, 2, 3])) == pytest.approx(2 / np.sqrt(2 * 3))
    assert tau_b(np.ones(3), np.arange(3.0)) == 0


def test_tau_is_of_the_score_where_there_is_one_and_within_tenants(rows):
    lengths = rows.length.to_numpy(dtype=float)
    assert score(Says(lengths, score=list(-lengths)), rows)["tau"] == pytest.approx(-1)
    per_tenant = lengths + 1e5 * (rows.tenant == "terse").to_numpy()
    assert score(Says(per_tenant), rows)["tau"] == pytest.approx(1)


def test_pinball_by_hand():
    assert pinball(np.array([10.0, 10.0]), np.array([20.0, 8.0]), 0.9) == pytest.approx((9 + 0.2) / 2)
    lengths = np.random.default_rng(0).exponential(100, 20_000)
    best = min(range(0, 500, 10), key=lambda q: pinball(np.full(20_000, q), lengths, 0.9))
    assert best == pytest.approx(np.quantile(lengths, 0.9), abs=10)


def test_bins_by_hand():
    lengths = np.arange(1.0, 9)
    assert bin_distance(lengths, lengths, 4).tolist() == [0] * 8
    assert bin_distance(np.full(8, 1.0), lengths, 4).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_cut_rows_are_left_out_of_the_coverage_and_counted(rows):
    rows = rows.assign(length=100, capped=np.arange(400) < 100)
    upper = np.where(np.arange(400) < 50, 99.0, 101.0)
    upper[100:130] = 50
    figures = score(Says(np.full(400, 40.0), upper), rows)
    assert figures["capped"] == 100
    assert figures["coverage"] == pytest.approx(270 / 300)
    assert figures["coverage_at_least"] == pytest.approx(320 / 400)


def test_ten_copies_of_a_prompt_are_one_observation():
    hits = np.repeat(np.random.default_rng(0).random(200) < 0.9, 10)
    alone = clustered_error(hits, np.arange(2000))
    assert alone == pytest.approx(np.sqrt(hits.mean() * (1 - hits.mean()) / 2000))
    assert clustered_error(hits, np.repeat(np.arange(200), 10)) == pytest.approx(alone * np.sqrt(10))
