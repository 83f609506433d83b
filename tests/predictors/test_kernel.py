from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import predictors.kernel
from predictors.encoder import Encoded
from predictors.first import FirstStage
from predictors.kernel import STRENGTH, KernelRidge, closeness

rng = np.random.default_rng(0)


@pytest.fixture
def rows():
    """400 rows of 300 different prompts; z follows them, and folds are by prompt."""
    points = rng.normal(size=(300, 4)).astype(np.float32)
    points = np.concatenate([points, points[:100]])
    folds = np.tile(np.arange(300), 2)[:400] % 5
    return points, np.sin(2 * points[:, 0].astype(np.float64)) + 0.2 * rng.normal(size=400), folds


def plain(points, z, asked):
    """Kernel ridge regression as it stands in the books, row by row."""
    kernel = closeness(points, points).astype(np.float64) + STRENGTH * np.eye(len(z))
    return closeness(asked, points) @ np.linalg.solve(kernel, z)


def test_closeness_is_one_for_the_same_and_falls_with_the_squared_distance():
    near = closeness(np.float32([[0, 0], [1, 0]]), np.float32([[0, 0], [1, 1]]))
    assert near == pytest.approx(np.exp([[0, -2], [-1, -1]]))


def test_prompts_with_several_rows_weigh_as_their_rows_would(rows):
    points, z, folds = rows
    model, _ = KernelRidge.fit(points, z, folds, seed=0)
    assert len(model.prompts) == 300
    asked = rng.normal(size=(50, 4)).astype(np.float32)
    assert model.predict(asked) == pytest.approx(plain(points, z, asked), abs=1e-4)


def test_what_is_said_of_a_fold_is_said_by_a_model_that_did_not_see_it(rows):
    points, z, folds = rows
    _, told = KernelRidge.fit(points, z, folds, seed=0)
    for fold in range(5):
        out = folds == fold
        assert told[out] == pytest.approx(plain(points[~out], z[~out], points[out]), abs=1e-4)
    assert np.corrcoef(told, z)[0, 1] > 0.6


def test_of_too_many_prompts_some_are_learned_from_and_all_are_told(rows, monkeypatch):
    points, z, folds = rows
    monkeypatch.setattr(predictors.kernel, "MOST_PROMPTS", 200)
    model, told = KernelRidge.fit(points, z, folds, seed=0)
    assert len(model.prompts) == 200
    assert np.isfinite(told).all()
    learned = (points[:, None] == model.prompts).all(axis=2).any(axis=1)
    assert told[~learned] == pytest.approx(model.predict(points[~learned]))
    assert np.corrcoef(told[learned], z[learned])[0, 1] > 0.5


@pytest.mark.parametrize(("useful", "least", "most"), [("words", 0, 0.2), ("points", 0.8, 1)])
def test_the_mixture_leans_to_what_foresees_better(useful, least, most):
    """Words or points say what z is; the other is noise."""
    n = 500
    said = rng.normal(size=(n, 3))
    parts = {"words": rng.normal(size=(n, 3)), "points": rng.normal(size=(n, 3))}
    parts[useful] = said
    encoded = Encoded(
        sparse.csr_matrix(parts["words"]), np.zeros((n, 1)), parts["points"].astype(np.float32), np.ones(n, dtype=bool)
    )
    codes, cut = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=bool)
    first, told = FirstStage.fit(encoded, codes, said @ [0.5, -0.5, 0.7], cut, np.arange(n) % 5, tenants=1, seed=0)
    assert least <= first.share <= most
    assert np.corrcoef(told.z, said @ [0.5, -0.5, 0.7])[0, 1] > 0.9
