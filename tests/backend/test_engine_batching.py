"""Closed batches: who is in, what an ended member goes on costing, and when the next batch may start."""

from __future__ import annotations

import pytest

from engine_by_hand import Machine, Script
from policies.api import Decision
from policies.fcfs import FCFS
from traffic_by_hand import run, traffic

both_loops = pytest.mark.parametrize("overlap", [False, True], ids=["sync", "overlap"])


def test_a_padded_slot_takes_a_token_of_the_budget() -> None:
    """Eight tokens a step: 4 of `a` and 4 of `b`, then 7 of `b` beside the slot of `a`, which has ended."""
    m = Machine(batching="static", max_num_seqs=2, max_num_batched_tokens=8)
    m.add("a", prompt=4, output=1)
    m.add("b", prompt=18, output=3)
    shapes = []
    while m.engine.live:
        batch = m.plan()
        assert batch is not None
        shapes.append((len(batch.decodes), [chunk.count for chunk in batch.chunks], batch.padding))
        m.commit()
    assert shapes == [(0, [4, 4], 0), (0, [7], 1), (0, [7], 1), (1, [], 1), (1, [], 1)]


@both_loops
def test_the_padding_ends_with_the_batch(overlap: bool) -> None:
    records = run(traffic(4, [1, 5, 1, 1]), FCFS(), overlap=overlap, batching="static", max_num_seqs=2).records
    second = records.steps[records.steps["started"] >= records.requests["scheduled"].iloc[2]]
    assert second["padding"].iloc[0] == 0
    assert set(records.requests["state"]) == {"completed"}


@both_loops
def test_eos_under_static_batching_frees_blocks_at_once_and_the_slot_with_the_batch(overlap: bool) -> None:
    m = Machine(batching="static", max_num_seqs=2, overlap=overlap)
    early, late = m.add(prompt=30, output=2), m.add(prompt=4, output=9)
    third = m.add(output=1)
    while early.freed < 0:
        m.step()
    assert late.state == ""
    assert m.engine.pool.allocated == 1
    assert m.engine.padding == 1
    m.drain()
    assert third.scheduled > late.last_token - 10 * 10**9
    assert [early.base, late.base, third.base] == [2, 9, 1]


def test_what_one_decision_admits_is_the_batch_though_it_be_fewer() -> None:
    m = Machine(Script(lambda view: Decision(admit=list(view.waiting)[:2])), batching="static", max_num_seqs=4)
    for _ in range(4):
        m.add(output=3)
    m.step()
    assert (m.engine.num_running, m.engine.waiting.size) == (2, 2)
    assert m.asked == 1
    m.step()
    assert m.engine.waiting.size == 2
    m.drain()
    assert m.asked == 2


@both_loops
def test_a_batch_whose_prompts_exceed_the_token_budget_is_one_batch_all_the_same(overlap: bool) -> None:
    m = Machine(batching="static", max_num_seqs=4, max_num_batched_tokens=10, overlap=overlap)
    requests = [m.add(prompt=9, output=4) for _ in range(4)]
    m.plan()
    assert m.engine.num_running == 4
    m.drain()
    assert [r.base for r in requests] == [4] * 4
