"""Service, its differences, Jain's index: worked by hand, and against a slow evaluation step by step."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.metrics import MetricOptions, summarise

S = 1000  # ms
OPTIONS = MetricOptions(window_s=10)


def request(tenant, arrival=0, end=10, **more):
    return {"tenant": tenant, "arrival": arrival * S, "state": "cancelled", "ended": end * S} | more


def seconds(n):
    """Steps of a second each."""
    return [{"started": i * S, "ended": (i + 1) * S} for i in range(n)]


def test_service_is_prompt_and_twice_the_output_over_the_weight(by_hand):
    """a: 10 prompt tokens in step 1, and 2 members for steps 1..4; b (weight 2): 6 of prompt, 1 member from 3 on."""
    service = [(0, 1, 1, 10, 0), (0, 1, 4, 0, 1), (0, 1, 4, 0, 1), (1, 3, 3, 6, 0), (1, 3, 10, 0, 1)]
    records = by_hand([request("a"), request("b")], seconds(10), service=service, weights={"a": 1, "b": 2})
    tenants = summarise(records, OPTIONS)["tenants"]
    assert (tenants["a"]["service"], tenants["b"]["service"]) == (10 + 2 * 8, (6 + 2 * 8) / 2)
    assert tenants["b"]["service_tokens"] == 22
    assert tenants["b"]["weight"] == 2


def test_service_difference_is_a_range_while_both_are_backlogged(by_hand):
    """a gets 2 a step in steps 1..4, b in 5..8. Both wait over [2, 6]: a - b goes 4, 6, 8, 6, 4, a range of 4.

    Without backlog (outside) it went from 0 to 8, a range of 8; at no time is the difference itself less than 0.
    """
    service = [(0, 1, 4, 0, 1), (1, 5, 8, 0, 1)]
    rows = [request("a"), request("b"), request("c", arrival=9)]

    def difference(backlog):
        return summarise(by_hand(rows, seconds(10), service=service, backlog=backlog), OPTIONS)[
            "max_service_difference"
        ]

    assert difference([(0, 0, 6 * S), (1, 2 * S, 10 * S)]) == 4
    assert difference([(0, 0, 10 * S), (1, 0, 10 * S)]) == 8
    assert (
        difference([(0, 0, 3 * S), (0, 5 * S, 8 * S), (1, 0, 10 * S)]) == 6
    )  # the larger of two intervals: 0 .. 6, 6 .. 0
    assert difference([(0, 0, 3 * S), (0, 3 * S, 8 * S), (1, 0, 10 * S)]) == 8  # they touch: one interval
    assert difference([(0, 0, 5 * S), (1, 5 * S, 10 * S)]) is None
    assert difference([(0, 0, 5 * S)]) is None


@pytest.mark.parametrize("merged", [False, True])
def test_an_interval_may_begin_and_end_within_a_row_of_equal_steps(by_hand, merged):
    steps = [{"steps": 10, "started": 0, "ended": 10 * S}] if merged else seconds(10)
    records = by_hand(
        [request("a"), request("b")],
        steps,
        service=[(0, 1, 10, 0, 1)],
        backlog=[(0, 2500, 7500), (1, 0, 9 * S)],
    )
    assert summarise(records, OPTIONS)["max_service_difference"] == 2 * (7 - 2)


def test_jain_is_over_rates_while_all_are_backlogged(by_hand):
    service = [(0, 1, 10, 0, 3), (1, 1, 10, 0, 1), (0, 6, 10, 0, 9)]
    rows = [request("a"), request("b")]

    def jain(backlog, weights=None):
        records = by_hand(rows, seconds(10), service=service, backlog=backlog, weights=weights)
        return summarise(records, OPTIONS)["jain"]

    both = [(0, 0, 5 * S), (1, 0, 9 * S)]
    assert jain(both) == pytest.approx((3 + 1) ** 2 / (2 * (9 + 1)))
    assert jain(both, {"a": 3, "b": 1}) == pytest.approx(1)
    assert jain([(0, 0, 5 * S)]) is None
    # a tenant that sent nothing is not compared
    assert jain(both, {"a": 3, "b": 1, "c": 1}) == pytest.approx(1)
    # no service at all while both wait
    assert jain([(0, 0, 500), (1, 0, 500)]) is None


def test_accumulated_difference_ends_with_the_arrivals(by_hand):
    """a alone is served: 2 a second, up to the last arrival at 7 s."""
    rows = [request("a"), request("b", arrival=7)]
    s = summarise(by_hand(rows, seconds(10), service=[(0, 1, 10, 0, 1)]), OPTIONS)
    assert s["accumulated_difference"] == 14
    back = summarise(by_hand(rows, seconds(10), service=[(0, 1, 4, 0, 1), (1, 5, 10, 0, 5)]), OPTIONS)
    assert back["accumulated_difference"] == 3 * 10 - 8
    at_once = summarise(by_hand([request("a"), request("b")], seconds(10), service=[(0, 1, 10, 0, 1)]), OPTIONS)
    assert at_once["accumulated_difference"] is None


def test_windowed_difference_of_the_paper(by_hand):
    """Windows [0, 10) and [10, 20). Service of a request of 10 + 2 * 20 = 50, spread from its first token to its end.

    Window 1: a asked for 100 and got 50 + 25 (0 .. 10, and half of 5 .. 15); b asked for 50 and got 12.5 (a quarter of
    0 .. 40): a lacks min(0, 25), b min(62.5, 37.5). Window 2: a got 25 and asked for nothing, b got 12.5 and asked for
    50 (arrival 12, never served, unfinished, 20 tokens to come): min(12.5, 37.5). In tokens/s: 3.75 and 1.25.
    """
    tokens = {"prompt_tokens": 10, "output_tokens": 20}
    rows = [
        request("a", 0, 10, first_token=0, last_token=10 * S, **tokens),
        request("a", 4, 15, first_token=5 * S, last_token=15 * S, **tokens),
        request("b", 0, 40, first_token=0, last_token=40 * S, **tokens),
        request("b", 12, state="unfinished", prompt_tokens=10, true_output_tokens=20),
        request("a", 29, 40, prompt_tokens=0),
    ]
    s = summarise(by_hand(rows, end=40 * S), OPTIONS)
    assert s["service_difference_window_max"] == pytest.approx(3.75)
    assert s["service_difference_window_mean"] == pytest.approx(2.5)
    assert s["service_difference_window_var"] == pytest.approx(1.25**2)
    short = summarise(by_hand(rows, end=40 * S), MetricOptions(window_s=60))
    assert short["service_difference_window_max"] is None


def test_one_tenant_has_nobody_to_compare_with(by_hand):
    rows = [request("a"), request("a", arrival=9)]
    s = summarise(by_hand(rows, seconds(10), service=[(0, 1, 10, 0, 1)], backlog=[(0, 0, 9 * S)]), OPTIONS)
    keys = ["jain", "max_service_difference", "accumulated_difference", "service_difference_window_mean"]
    assert [s[k] for k in keys] == [None] * 4


tables = st.tuples(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 12), st.integers(0, 6), st.integers(0, 9), st.integers(0, 2)),
        max_size=8,
    ),
    st.lists(st.integers(1, 4), min_size=3, max_size=6),
    st.lists(st.lists(st.integers(0, 14), unique=True, max_size=6), min_size=3, max_size=3),
)


@given(tables)
def test_differences_as_if_evaluated_step_by_step(by_hand, table):
    """Rows of several steps of a second each; spells begin and end at the borders of rows, as the engine's do."""
    spells, rows, borders = table
    first = np.cumsum([1, *rows])
    total = int(first[-1]) - 1
    spells = [
        (t, int(first[a % len(rows)]), int(first[max(a % len(rows) + 1, b % len(rows))]) - 1, p, o)
        for t, a, b, p, o in spells
    ]
    served = np.zeros((3, total + 1))
    for t, a, b, p, o in spells:
        served[t, a : b + 1] += p + 2 * o
    served = served.cumsum(axis=1)
    steps = [{"steps": n, "started": (f - 1) * S, "ended": (f - 1 + n) * S} for f, n in zip(first, rows, strict=False)]
    backlogs = [[(a, b) for a, b in zip(sorted(x)[::2], sorted(x)[1::2], strict=False)] for x in borders]
    records = by_hand(
        [request(name, end=total) for name in "abc"] + [request("a", arrival=total - 1, end=total)],
        [{k: int(v) for k, v in row.items()} for row in steps],
        service=spells,
        backlog=[(t, a * S, b * S) for t, spans in enumerate(backlogs) for a, b in spans],
    )
    expected = [
        np.ptp((served[u] - served[v])[max(a, c) : min(b, d, total) + 1])
        for u, v in combinations(range(3), 2)
        for a, b in backlogs[u]
        for c, d in backlogs[v]
        if max(a, c) < min(b, d, total)
    ]
    s = summarise(records, OPTIONS)
    assert s["max_service_difference"] == (pytest.approx(max(expected)) if expected else None)
    before = served[:, :total]  # the last arrival comes a second before the end
    assert s["accumulated_difference"] == pytest.approx((before.max(axis=0) - before.min(axis=0)).max())
    assert [t["service"] for t in s["tenants"].values()] == pytest.approx(served[:, -1].tolist())
