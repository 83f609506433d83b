from __future__ import annotations

import math

import numpy as np
import pytest

from predictors.survival import Survival

KNOWN = np.zeros(5, dtype=bool)


def curve(values, capped=None):
    values = np.array(values, dtype=float)
    return Survival.fit(values, np.zeros(len(values), dtype=bool) if capped is None else np.array(capped))


def test_kaplan_and_meier_by_hand():
    """1, 2+, 3, 4+, 5: alive 4/5 after 1, times 2/3 after 3; 5 leaves the floor of half a value."""
    at = Survival.fit(np.array([1.0, 2, 3, 4, 5]), np.array([False, True, False, True, False]))
    assert at.points.tolist() == pytest.approx([0.999, 1, 3, 5])
    assert at.alive.tolist() == pytest.approx([1, 0.8, 0.8 * 2 / 3, 0.1])
    assert at.beyond(np.array([0.0, 1, 3])).tolist() == pytest.approx([1, 0.8, 0.8 * 2 / 3])


def test_without_cuts_it_is_the_share_that_is_longer():
    values = np.arange(1.0, 101)
    at = curve(values)
    assert at.beyond(values[:90]) == pytest.approx(1 - values[:90] / 100)
    assert float(at.quantile(np.array(0.5))) == pytest.approx(50, abs=1)


def test_cuts_hide_no_bias():
    rng = np.random.default_rng(0)
    truth, cuts = rng.standard_normal(20_000), rng.normal(0.5, 0.5, 20_000)
    at = Survival.fit(np.minimum(truth, cuts), cuts < truth)
    for p in (0.1, 0.5, 0.8):
        assert float(at.quantile(np.array(p))) == pytest.approx(np.quantile(truth, p), abs=0.05)


def test_behind_the_known_it_goes_on_as_an_exponential():
    """A memoryless truth is estimated as memoryless, far beyond its largest value."""
    values = np.random.default_rng(1).exponential(2.0, 20_000)
    at = curve(values)
    for value in (1.0, 5.0, 30.0, 1e3):
        left = at.quantile_beyond(0.5, np.array([value]))[0] - value
        assert left == pytest.approx(2 * math.log(2), rel=0.1)
        assert at.mean_beyond(np.array([value]))[0] - value == pytest.approx(2, rel=0.12)


@pytest.mark.parametrize("values", [[1, 1], [1, 2], [3, 3, 4], [0, 0, 0, 0, 9], list(range(30))])
@pytest.mark.parametrize("p", [0.01, 0.5, 0.99])
def test_the_few_and_the_equal_too_leave_something(values, p):
    at = curve(values)
    seen = np.array([-math.inf, -5, 0, 1, 2, 10, 1e6])
    beyond = at.quantile_beyond(p, seen)
    assert np.isfinite(beyond).all()
    assert (beyond >= seen).all()
    assert (np.diff(beyond) >= 0).all()
    assert (np.diff(at.beyond(seen)) <= 0).all()


def test_quantiles_invert_survival():
    at = curve(np.random.default_rng(2).standard_t(4, 500))
    p = np.linspace(0.01, 0.999, 50)
    assert at.beyond(at.quantile(p)) == pytest.approx(1 - p)


def test_with_nothing_known_the_cuts_are_taken_as_ends():
    assert np.isfinite(curve([1, 2, 3], [True] * 3).quantile(np.array(0.5)))
