"""Clients who leave: whenever they do, the request ends once, its neighbours notice nothing, its blocks come back."""

from __future__ import annotations

import pytest

from backend.request import Phase
from bench.metrics import MetricOptions, summarise
from engine_by_hand import Machine
from policies.fcfs import FCFS
from traffic_by_hand import MS, run, traffic

both_loops = pytest.mark.parametrize("overlap", [False, True], ids=["sync", "overlap"])


@pytest.mark.parametrize(
    ("overlap", "leaves"),
    [
        (False, {"cancel_tokens": 3}),
        (False, {"cancel_after": 45 * MS}),
        (True, {"cancel_tokens": 3}),
        (True, {"cancel_after": 35 * MS}),
    ],
)
def test_leaving_a_stream_of_200_after_3(overlap: bool, leaves: dict[str, int]) -> None:
    """Sync hands over at 15, 30, 45 ms, overlap at 15, 25, 35."""
    records = run(traffic(4, 10**6, max_tokens=200, **leaves), FCFS(), overlap=overlap).records
    [request] = records.requests.to_dict("records")
    assert (request["state"], request["finish_reason"]) == ("cancelled", "cancelled")
    assert request["output_tokens"] == 3
    assert request["made_tokens"] <= 3 + 2
    assert request["freed"] >= request["ended"] == request["cancel_called"]
    assert records.steps["kv_blocks"].iloc[-1] == records.steps["kv_tokens"].iloc[-1] == 0
    summary = summarise(records, MetricOptions())
    assert summary["cancellation_lag_mean_ms"] >= 0
    assert summary["blocks_freed_lag_mean_ms"] >= 0
    assert summary["cancelled"] == 1


@both_loops
def test_in_the_step_of_the_last_token_the_order_of_events_decides(overlap: bool) -> None:
    """Five tokens by length; the neighbour makes its ten whatever happens."""
    for early in (True, False):
        m = Machine(overlap=overlap)
        request, neighbour = m.add(output=99, max_tokens=5), m.add(output=10)
        while m.engine.dispatched < 5:
            m.plan()
            if len(m.flying) > overlap and not (early and m.engine.dispatched == 5):
                m.commit()
        if early:
            assert request.outputs(m.engine.committed) < 5
            m.cancel(request)
        while request.state == "":
            m.commit()
        m.cancel(request)
        m.drain()
        assert request.state == ("cancelled" if early else "completed")
        assert (request.base == 5) is not early
        assert request.base + request.made == 5
        assert (neighbour.base, neighbour.state) == (10, "completed")
        assert len(m.ended) == 2


@both_loops
def test_after_the_finish_twice_and_of_an_unknown_id_nothing_happens(overlap: bool) -> None:
    m = Machine(overlap=overlap)
    done, twice, neighbour = m.add(output=2), m.add(output=50), m.add(output=10)
    while done.state == "":
        m.step()
    ended = done.ended
    assert m.engine.cancel(done.id, m.now) is None
    assert m.engine.cancel("nobody", m.now) is None
    assert m.engine.cancel(twice.id, m.now) is twice
    called = twice.cancel_called
    m.now += 1 * MS
    assert m.engine.cancel(twice.id, m.now) is None
    m.tell()
    m.drain()
    assert m.engine.cancel(twice.id, m.now) is None
    assert (done.state, done.ended) == ("completed", ended)
    assert (twice.state, twice.cancel_called, twice.ended) == ("cancelled", called, called)
    assert (neighbour.state, neighbour.base) == ("completed", 10)
    assert [r.id for r in m.ended] == [done.id, twice.id, neighbour.id]


@both_loops
def test_the_fifth_of_six_in_two_slots_leaves_while_it_waits(overlap: bool) -> None:
    work = traffic(4, 10, n=6, cancel_after=[-1, -1, -1, -1, 5 * MS, -1])
    records = run(work, FCFS(), overlap=overlap, max_num_seqs=2).records
    fifth = records.requests.iloc[4]
    assert (fifth["state"], fifth["scheduled"], fifth["first_token"], fifth["made_tokens"]) == ("cancelled", -1, -1, 0)
    assert fifth["cancel_called"] == 5 * MS
    assert fifth["ended"] == fifth["freed"] == (6 if overlap else 5) * MS, "the host plans step 2 from 3 to 6"
    others = records.requests.drop(index=4)
    assert set(others["state"]) == {"completed"}
    assert set(others["output_tokens"]) == {10}
    summary = summarise(records, MetricOptions())
    assert (summary["n_ttft"], summary["n_cancellation_lag"]) == (5, 0)


@both_loops
def test_between_the_second_and_third_of_four_chunks(overlap: bool) -> None:
    m = Machine(overlap=overlap, max_num_batched_tokens=16, max_num_seqs=4)
    request, neighbour = m.add(prompt=64), m.add(output=3)
    m.plan()
    if overlap:
        m.plan()
        m.commit()
    else:
        m.commit()
        m.plan()
    m.commit()
    assert (request.phase, request.computed, request.planned) == (Phase.PREFILL, 32, 32)
    m.cancel(request)
    assert request.freed == m.now, "no batch in flight holds it"
    assert m.engine.pool.free == 100
    m.drain()
    assert (request.base, request.made, neighbour.base) == (0, 0, 3)


@both_loops
def test_a_chunk_in_flight_holds_the_blocks_until_it_commits(overlap: bool) -> None:
    m = Machine(overlap=overlap, max_num_batched_tokens=16, max_num_seqs=4)
    request = m.add(prompt=64)
    m.plan()
    m.cancel(request)
    assert (request.state, request.freed, m.engine.pool.free) == ("cancelled", -1, 96)
    m.commit()
    assert (request.freed, m.engine.pool.free) == (m.now, 100)
    assert request.scheduled == 3 * MS
    assert m.engine.live == {}


@both_loops
@pytest.mark.parametrize("moment", [0, 1, 12, 14, 15, 40, 77])
def test_all_six_leave(moment: int, overlap: bool) -> None:
    work = traffic(40, 30, n=6, cancel_after=moment * MS)
    records = run(work, FCFS(), overlap=overlap, max_num_seqs=2, max_num_batched_tokens=16).records
    requests, steps = records.requests, records.steps
    assert list(requests["state"]) == ["cancelled"] * 6
    assert (requests["ended"] <= (moment + 3) * MS).all(), "handled when the host is free"
    assert not len(steps) or steps["planned"].max() <= moment * MS, "nothing is planned afterwards"
    assert not len(steps) or (steps["kv_blocks"].iloc[-1], steps["kv_tokens"].iloc[-1]) == (0, 0)
    summary = summarise(records, MetricOptions())
    assert (summary["cancelled"], summary["completed"], summary["submitted"]) == (6, 0, 6)
    assert summary["output_throughput"] in (0.0, None)


@both_loops
@pytest.mark.parametrize("batching", ["static", "dynamic"])
def test_the_slot_of_one_who_leaves_a_closed_batch_stays_padded(batching: str, overlap: bool) -> None:
    work = traffic(4, 10, n=3, cancel_after=[-1, 32 * MS, -1])
    records = run(work, FCFS(), overlap=overlap, batching=batching, max_num_seqs=2, batch_timeout_s=0.01).records
    assert list(records.requests["state"]) == ["completed", "cancelled", "completed"]
    first_batch = records.steps[records.steps["started"] < records.requests["ended"].iloc[0]]
    assert set(first_batch["decodes"] + first_batch["padding"] + first_batch["chunks"]) == {2}
    third = records.requests.iloc[2]
    assert third["scheduled"] >= records.requests["last_token"].iloc[0], "nobody joins before the batch ends"
