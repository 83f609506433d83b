"""Three admission rules: what each lets in, and what it promises."""

from __future__ import annotations

from random import Random

import pytest

from engine_by_hand import Machine, Script
from policies.api import RequestView

both_loops = pytest.mark.parametrize("overlap", [False, True], ids=["sync", "overlap"])


def admitted(admission: str, pool: int, *sizes: tuple[int, int]) -> int:
    """How many of requests of (prompt, max_tokens) start at once in a pool of so many tokens."""
    m = Machine(admission=admission, blocks=pool, block_size=1)
    for prompt, limit in sizes:
        m.add(prompt=prompt, max_tokens=limit)
    m.plan()
    return m.engine.num_running


@pytest.mark.parametrize(("admission", "started"), [("optimistic", 4), ("reserve", 2), ("peak", 3)])
def test_three_rules_on_the_same_queue(admission: str, started: int) -> None:
    """Pool of 20 tokens; prompts of 4, all computed in the first step.

    Final KV: 12, 6, 6, 6. Reserve: 12 + 6 = 18 fit. Peak: with three, 4 + 4 + 4, then 6 + 6 + 6 = 18 after two more
    steps, and 12 at the end; with four it would be 24. Optimistic: four prompts make 16.
    """
    assert admitted(admission, 20, (4, 9), (4, 3), (4, 3), (4, 3)) == started


def test_peak_is_at_a_predicted_finish_in_the_middle() -> None:
    """Two of 4 + 5 grow side by side: 8 + 8 at the end. One of 10 that ends at once fits beside, 10 + 4 + 4."""
    assert admitted("peak", 18, (10, 1), (4, 5), (4, 5)) == 3
    assert admitted("peak", 17, (10, 1), (4, 5), (4, 5)) == 2
    assert admitted("peak", 16, (4, 5), (4, 5)) == 2
    assert admitted("peak", 15, (4, 5), (4, 5)) == 1


@both_loops
@pytest.mark.parametrize("admission", ["reserve", "peak"])
@pytest.mark.parametrize("seed", range(15))
def test_nobody_is_preempted_where_reservations_hold(seed: int, admission: str, overlap: bool) -> None:
    """`max_tokens` reserved, and every prompt in one step: nobody ever needs a block that is not there."""
    chance = Random(seed)
    size = chance.choice([1, 4, 16])
    m = Machine(admission=admission, overlap=overlap, blocks=chance.choice([8, 20]), block_size=size, max_num_seqs=6)
    room = m.engine.max_model_len
    requests = []
    for _ in range(40):
        prompt = chance.randint(1, max(1, room // 2))
        requests.append(m.add(prompt=prompt, output=chance.randint(1, 30), max_tokens=chance.randint(1, 30)))
        for _ in range(chance.choice([0, 0, 1, 5])):
            m.step()
    m.drain()
    assert {r.state for r in requests} == {"completed"}
    assert sum(r.preemptions for r in requests) == 0


@both_loops
@pytest.mark.parametrize("admission", ["reserve", "peak"])
def test_who_outruns_a_reservation_grows_block_by_block_and_may_be_preempted(admission: str, overlap: bool) -> None:
    class Hopeful(Script):
        def reservation(self, request: RequestView) -> int:
            return 1

    m = Machine(Hopeful(), admission=admission, overlap=overlap, blocks=8, block_size=4, max_num_seqs=4)
    requests = [m.add(prompt=4, output=16) for _ in range(4)]
    m.drain()
    assert [r.base for r in requests] == [16] * 4
    assert sum(r.preemptions for r in requests) > 0


def test_a_reservation_counts_as_allocated_though_nothing_is_written() -> None:
    m = Machine(admission="reserve")
    m.add(prompt=16, max_tokens=33)
    m.step()
    assert (m.engine.pool.allocated, m.engine.members.kv_tokens) == (3, 16)
