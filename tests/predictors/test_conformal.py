from __future__ import annotations

import numpy as np
import pytest

from predictors.conformal import Residuals, rank_bound
from predictors.pairs import BadRows


@pytest.mark.parametrize(
    ("n", "quantile", "rank"), [(9, 0.9, 9), (10, 0.9, 10), (19, 0.9, 18), (99, 0.9, 90), (3, 0.5, 2)]
)
def test_the_bound_is_the_value_of_a_rank_among_one_more(n, quantile, rank):
    errors = np.random.default_rng(0).permutation(np.arange(1.0, n + 1))
    assert rank_bound(errors, quantile) == rank


def test_too_few_to_calibrate_are_refused():
    with pytest.raises(BadRows, match=r"8 known lengths are held out, too few to calibrate a 90.0% quantile"):
        rank_bound(np.arange(8.0), 0.9)


@pytest.mark.parametrize("n", [9, 25, 200])
def test_the_next_one_stays_under_with_the_chance_that_was_asked_for(n):
    """Whatever the distribution: here a Cauchy."""
    rng = np.random.default_rng(n)
    hits = [rng.standard_cauchy() <= rank_bound(rng.standard_cauchy(n), 0.9) for _ in range(4000)]
    assert 0.9 - 0.015 <= np.mean(hits) <= 0.9 + 1 / (n + 1) + 0.015


def test_a_tenant_with_enough_rows_has_a_bound_of_its_own():
    rng = np.random.default_rng(0)
    codes = np.array([0] * 1000 + [1] * 1000 + [2] * 30)
    errors = rng.standard_normal(2030) * np.where(codes == 0, 1.0, 3.0)
    residuals = Residuals.fit(errors, np.zeros(2030, dtype=bool), codes, tenants=3, quantile=0.9)
    nothing = np.full(4, -np.inf)
    middle, upper = residuals.middle_and_upper(np.array([0, 1, 2, -1]), nothing)
    assert upper[0] == pytest.approx(1.28, abs=0.2)
    assert upper[1] == pytest.approx(3.85, abs=0.5)
    assert upper[2] == upper[3] == rank_bound(errors, 0.9)
    assert middle == pytest.approx([0] * 4, abs=0.2)


def test_cut_rows_do_not_enter_the_bound_and_raise_the_middle():
    errors = np.arange(1000.0)
    capped = errors % 2 == 1
    codes = np.zeros(1000, dtype=np.int64)
    told = Residuals.fit(errors, capped, codes, 1, 0.9)
    deaf = Residuals.fit(errors, np.zeros(1000, dtype=bool), codes, 1, 0.9)
    assert told.uppers[0] == rank_bound(errors[~capped], 0.9)
    nothing = np.array([-np.inf])
    assert told.middle_and_upper(codes[:1], nothing)[0] > deaf.middle_and_upper(codes[:1], nothing)[0] + 100
