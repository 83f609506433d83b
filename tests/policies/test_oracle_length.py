from __future__ import annotations

from policies.oracle_length import OracleLength


def test_the_shortest_true_length_goes_first_and_holds_what_it_will_need(engine):
    policy = OracleLength()
    it = engine(policy)
    long = it.arrive("long", true_output_tokens=300)
    it.arrive("short", true_output_tokens=3)
    it.arrive("middle", true_output_tokens=30)
    it.arrive("also short", true_output_tokens=3)
    assert it.offered() == "short also short middle long"
    assert policy.reservation(long) == 300
    assert policy.needs == {"oracle"}
