"""The parts between the words and the answer."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from predictors.heads import Material, Spread
from predictors.learned import LearnedConfig
from predictors.linear import FEWEST_ROWS, UNSEEN, SharedRidge, Tenants, out_of_fold
from predictors.pairs import frame
from predictors.ranker import RankHead, _pairs
from predictors.score import score
from predictors.split import groups_of
from predictors.training import _folds, fit

rng = np.random.default_rng(0)


def material(n=800, features=12, z=None, capped=None, tenants=2):
    dense = np.column_stack([rng.standard_normal((n, features)), rng.integers(0, tenants, n)])
    given = rng.standard_normal(n) if z is None else z(dense)
    cut = np.zeros(n, dtype=bool) if capped is None else capped
    return Material(dense, np.zeros(n), given, cut, np.zeros(n), np.ones(n))


def test_tenants_share_what_they_have_in_common_and_keep_what_is_their_own():
    x = sparse.csr_matrix(rng.standard_normal((3000, 3)))
    codes = rng.integers(0, 3, 3000)
    own = np.array([0.0, 1.0, 2.0])[codes]
    z = x.toarray()[:, 0] + own * x.toarray()[:, 1] + 0.1 * rng.standard_normal(3000)
    ridge = SharedRidge.fit(x, codes, z, 3)
    probe = sparse.csr_matrix(np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]]))
    for code in range(3):
        assert ridge.predict(probe, np.full(3, code))[0] == pytest.approx([1, code, 0], abs=0.1)
    unseen, anybody = ridge.predict(probe, np.full(3, UNSEEN))
    assert (unseen == anybody).all()
    assert unseen == pytest.approx([1, 1, 0], abs=0.35)


def test_a_tenant_with_few_rows_is_one_never_seen():
    names = np.array(["many"] * FEWEST_ROWS + ["few"] * (FEWEST_ROWS - 1), dtype=object)
    tenants = Tenants.fit(names, np.arange(len(names), dtype=float))
    assert tenants.names == ["many"]
    assert tenants.codes(np.array(["few", "many", "new"], dtype=object)).tolist() == [UNSEEN, 0, UNSEEN]
    assert tenants.center.tolist() == pytest.approx([(FEWEST_ROWS - 1) / 2, (len(names) - 1) / 2])


def test_out_of_fold_no_row_is_predicted_from_its_own_length():
    """With a feature of its own for each row, a ridge that has seen it knows it, and no other."""
    x, z = sparse.eye_array(100, format="csr"), rng.standard_normal(100)
    seen, _ = SharedRidge.fit(x, np.zeros(100, dtype=int), z, 1).predict(x, np.zeros(100, dtype=int))
    unseen, _ = out_of_fold(x, np.zeros(100, dtype=int), z, np.arange(100) % 5, 1)
    assert np.corrcoef(seen, z)[0, 1] > 0.9
    assert abs(np.corrcoef(unseen, z)[0, 1]) < 0.5


def test_a_conversation_stays_in_one_fold(corpus):
    rows = corpus.rows.head(300).copy()
    rows["text"] = [f"User: {i // 3}" + "\n\nAssistant: yes.\n\nUser: more" * (i % 3) for i in range(300)]
    folds = _folds(groups_of(rows), seed=0)
    assert (folds.reshape(100, 3) == folds[::3, None]).all()
    assert sorted(np.bincount(folds).tolist()) == [60] * 5


def test_the_spread_is_wide_where_lengths_vary_more():
    wild = material(3000, z=lambda x: rng.standard_normal(len(x)) * np.where(x[:, 0] > 0, 3.0, 0.5))
    widths = Spread.fit(wild, 300, 0).predict(wild.dense)
    assert np.median(widths[wild.dense[:, 0] > 0]) > 3 * np.median(widths[wild.dense[:, 0] < 0])


def test_pairs_are_of_one_tenant_and_their_order_is_sure():
    some = material(capped=np.arange(800) % 3 == 0)
    longer, shorter = _pairs(some, np.random.default_rng(0))
    assert len(longer) > 800
    assert (some.z[longer] > some.z[shorter]).all()
    assert not some.capped[shorter].any()
    assert (some.dense[longer, -1] == some.dense[shorter, -1]).all()


def test_a_rank_is_learned_from_the_order_alone():
    """Lengths bent by any increasing function are ranked the same."""
    plain = material(3000, z=lambda x: x[:, 0] - 0.5 * x[:, 1] + 0.3 * rng.standard_normal(len(x)))
    bent = Material(plain.dense, plain.first, np.sinh(2 * plain.z), plain.capped, plain.center, plain.scale)
    scores = [RankHead.fit(m, 0).locate(m.dense, m.first, m.center, m.scale).score for m in (plain, bent)]
    assert np.corrcoef(*scores)[0, 1] > 0.999
    assert np.corrcoef(scores[0], plain.dense[:, 0] - 0.5 * plain.dense[:, 1])[0, 1] > 0.99


def test_calibration_is_on_prompts_that_were_not_fitted():
    """Random words and random lengths: what is fitted looks far better known than what comes."""
    words = [f"word{i}" for i in range(300)]

    def rows(n):
        texts = [" ".join(rng.choice(words, 8)) for _ in range(n)]
        lengths = np.exp(rng.normal(5, 1, n)).astype(np.int64) + 1
        return frame({"text": texts, "prompt_tokens": 8, "tenant": "t", "arrival": 0, "max_tokens": 10**6,
                      "source": "s", "length": lengths, "capped": False})  # fmt: skip

    fitted = rows(600)
    predictor = fit(fitted, LearnedConfig(rounds=40, topics=10))
    assert score(predictor, fitted)["coverage"] > 0.93
    assert score(predictor, rows(1500))["coverage"] == pytest.approx(0.9, abs=0.035)
