from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from predictors.trees import CHUNK, ROWS_PER_ROUND, Trees, _options

rng = np.random.default_rng(0)
X = rng.standard_normal((3 * CHUNK // 2, 8))
X[rng.random(X.shape) < 0.2] = np.nan
Y = np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1]) ** 2 + np.isnan(X[:, 2]) + 0.1 * rng.standard_normal(len(X))


def test_the_arrays_answer_as_the_library_does():
    theirs = HistGradientBoostingRegressor(**_options(len(X), 60, 0)).fit(X, Y)
    ours = Trees.grow(X, Y, 60, 0)
    fresh = np.vstack([X + 0.01, np.full((1, 8), np.nan), np.full((1, 8), 1e300)])
    assert ours.predict(fresh)[:, 0] == pytest.approx(theirs.predict(fresh), abs=1e-9)
    assert ours.predict(fresh[:1]).shape == (1, 1)
    assert ours.predict(fresh[:0]).shape == (0, 1)


def test_classes_too():
    places = np.digitize(Y, [-0.5, 0.5, 2])
    theirs = HistGradientBoostingClassifier(**_options(len(X), 40, 0)).fit(X, places)
    assert Trees.grow_classes(X, places, 40, 0).predict(X) == pytest.approx(theirs.decision_function(X), abs=1e-9)


def test_a_target_that_never_varies_is_answered_with_it():
    assert Trees.grow(X, np.full(len(X), 3.0), 40, 0).predict(X) == pytest.approx(3.0)


def test_a_feature_that_nobody_knows_does_no_harm():
    holes = X.copy()
    holes[:, 3] = np.nan
    assert np.corrcoef(Trees.grow(holes, Y, 60, 0).predict(X)[:, 0], Y)[0, 1] > 0.9


def test_few_rows_make_few_and_small_trees():
    few, many = Trees.grow(X[:120], Y[:120], 300, 0), Trees.grow(X, Y, 300, 0)
    assert len(few.roots) == 40
    assert len(many.roots) == len(X) // ROWS_PER_ROUND
