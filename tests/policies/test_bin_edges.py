from __future__ import annotations

import math

import numpy as np
import pytest

from policies.bin_edges import Edges, EqualMassEdges, exponential_edges


def test_a_length_belongs_to_the_first_bin_whose_edge_holds_it():
    edges = Edges(3, [10, 20, 30])
    assert [edges.bin(length) for length in (1, 10, 10.5, 20, 30, 31, math.inf, math.nan)] == [0, 0, 1, 1, 2, 2, 2, 2]
    assert [edges.upper(length) for length in (10, 20.5, 31, math.nan)] == [10, 30, math.inf, math.inf]


def test_without_an_edge_of_its_own_the_last_bin_has_no_upper_end():
    edges = Edges(3, [10, 20])
    assert [edges.bin(length) for length in (10, 20, 21)] == [0, 1, 2]
    assert edges.upper(21) == math.inf


def test_equal_mass_edges_are_quantiles_of_the_last_predictions():
    edges = EqualMassEdges(4, history=8)
    for length in (1000, 1000, 1000, 8, 7, 6, 5, 4, 3, 2, 1):  # the thousands are forgotten
        edges.learn(length)
    assert edges.edges == [2, 4, 6]
    edges.learn(math.nan)
    edges.learn(math.inf)
    assert edges.edges == [2, 4, 6]


@pytest.mark.parametrize("bins", [2, 4, 5, 32])
def test_equal_mass_bins_get_equal_shares(bins):
    edges = EqualMassEdges(bins, history=1000)
    lengths = np.random.default_rng(1).lognormal(5, 1, 1000)
    for length in lengths:
        edges.learn(length)
    shares = np.bincount([edges.bin(length) for length in lengths], minlength=bins)
    assert shares.max() - shares.min() <= 1


def test_a_bin_of_nobody_yet_is_the_first():
    edges = EqualMassEdges(4, history=10)
    assert edges.bin(100) == 0
    assert edges.upper(100) == math.inf


def test_exponential_edges_by_hand():
    # B = 2: L1 = 1.5, L2 = 1 + ln 1.5 = 1.405465; widths from the right 10 ln 1.5 = 4.054651, 10 ln 1.405465 = 3.40368
    assert exponential_edges(3, 2, 10.0) == pytest.approx([3.40368, 7.45833], abs=1e-5)
    assert exponential_edges(1, 2, 10.0) == []


def static_throughput(edges: list[float], mean: float, batch: int) -> float:
    """batch / mean over bins of the expected maximum of `batch` lengths of the bin, integrated numerically."""
    time = 0.0
    for low, high in zip([0.0, *edges], [*edges, 40 * mean], strict=True):
        mass = math.exp(-low / mean) - math.exp(-high / mean)
        x = np.linspace(low, high, 20_001)
        below = (math.exp(-low / mean) - np.exp(-x / mean)) / mass
        time += mass * (low + np.trapezoid(1 - below**batch, x))
    return batch / time


def test_exponential_edges_reach_the_published_throughput():
    """arXiv 2412.04504: B = 200, mean 10, 5 bins: 13.20, and 9.34 with equal mass."""
    equal_mass = [-10 * math.log(1 - i / 5) for i in range(1, 5)]
    assert static_throughput(exponential_edges(5, 200, 10.0), 10.0, 200) == pytest.approx(13.20, rel=0.01)
    assert static_throughput(equal_mass, 10.0, 200) == pytest.approx(9.34, rel=0.01)
