from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.sample import Sample
from bench.spans import common, union

values = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 5)), max_size=20)
quantiles = st.floats(0, 100)


@given(values, quantiles)
def test_repeats_count_as_if_written_out(pairs, q):
    numbers, repeats = [v for v, _ in pairs], [r for _, r in pairs]
    sample, full = Sample(numbers, repeats), np.repeat(np.array(numbers, dtype=float), np.array(repeats, dtype=int))
    if not len(full):
        assert sample.n == 0
        assert sample.mean is sample.std is sample.max is sample.percentile(q) is None
        return
    assert sample.n == len(full)
    assert sample.percentile(q) == pytest.approx(np.percentile(full, q))
    assert (sample.mean, sample.max) == (pytest.approx(full.mean()), full.max())
    assert sample.std == pytest.approx(full.std())


@given(st.lists(st.integers(0, 100), min_size=1), st.integers(1, 9), st.integers(0, 100))
def test_a_percentile_of_a_censored_sample_does_not_depend_on_what_is_not_known(numbers, censored, q):
    known = Sample(numbers, censored=censored).percentile(q)
    for unknown in (101.0, 10**9):
        if known is not None:
            assert known == pytest.approx(Sample(numbers + [unknown] * censored).percentile(q))
    reached = q * (len(numbers) + censored - 1) > 100 * (len(numbers) - 1)
    assert (known is None) == reached


moments = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=6)


@given(st.lists(moments, min_size=1, max_size=4))
def test_spans_are_sets_of_moments(lists):
    sets = [
        union(np.array([a for a, _ in rows], dtype=np.int64), np.array([a + d for a, d in rows], dtype=np.int64))
        for rows in lists
    ]
    points = [{t for a, d in rows for t in range(a, a + d)} for rows in lists]
    for spans, members in [*zip(sets, points, strict=True), (common(sets), set.intersection(*points))]:
        listed = [t for a, b in zip(spans.since, spans.until, strict=True) for t in range(a, b)]
        assert listed == sorted(members)
        assert (spans.since[1:] > spans.until[:-1]).all()  # maximal: no two touch
        assert spans.length == len(members)
