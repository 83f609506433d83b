"""Overlap changes when things happen, never what is made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench.metrics import MetricOptions, summarise
from engine_by_hand import Machine, MemoryDevice
from policies.fcfs import FCFS
from traffic_by_hand import run, traffic

both_loops = pytest.mark.parametrize("overlap", [False, True], ids=["sync", "overlap"])


@pytest.mark.parametrize("prompts", [[3] * 6, [30, 3, 17, 9, 25, 4]], ids=["equal", "mixed"])
def test_preemption_counts_of_the_two_loops_are_comparable(prompts: list[int]) -> None:
    """Blocks that are on their way back count as coming: overlap preempts no more for seeing them a step later."""
    counts: dict[bool, list[int]] = {False: [], True: []}
    for overlap, preemptions in counts.items():
        for blocks in range(18, 40, 3):
            work = traffic(prompts * 5, 40)
            requests = run(work, FCFS(), overlap=overlap, blocks=blocks, block_size=4, max_num_seqs=8).records.requests
            assert set(requests["output_tokens"]) == {40}
            preemptions.append(int(requests["preemptions"].sum()))
    sync, overlapped = np.array(counts[False]), np.array(counts[True])
    assert (sync > 0).any()
    assert abs(overlapped.sum() - sync.sum()) <= 0.1 * sync.sum()


@both_loops
@pytest.mark.parametrize("stop", ["stop", "length", "both"])
def test_max_tokens_1_makes_one_token_and_has_no_tpot(stop: str, overlap: bool) -> None:
    work = traffic(4, 99 if stop == "length" else 1, max_tokens=-1 if stop == "stop" else 1)
    records = run(work, FCFS(), overlap=overlap).records
    [request] = records.requests.to_dict("records")
    assert (request["output_tokens"], request["state"]) == (1, "completed")
    assert request["finish_reason"] == ("length" if stop == "length" else "stop")
    assert request["first_token"] == request["last_token"] == request["ended"]
    summary = summarise(records, MetricOptions())
    assert (summary["n_tpot"], summary["mean_tpot_ms"], summary["n_itl"]) == (0, None, 0)


@both_loops
def test_prompt_4_and_2_outputs_write_5_tokens_of_kv(overlap: bool) -> None:
    m = Machine(overlap=overlap)
    m.add(prompt=4, output=99, max_tokens=2)
    written = []
    while m.engine.live:
        m.step()
        written.append(m.engine.members.kv_tokens)
    assert m.device.peak == 5
    assert written[0] == 4
    assert m.engine.committed == 2


@pytest.mark.parametrize("tokens", [1, 2, 3, 10])
def test_a_finish_by_length_takes_no_extra_step(tokens: int) -> None:
    steps = {}
    for overlap in (False, True):
        records = run(traffic(4, 999, max_tokens=tokens), FCFS(), overlap=overlap).records
        steps[overlap] = int(records.steps["steps"].sum())
        assert records.steps["wasted"].sum() == 0
    assert steps == {False: tokens, True: tokens}


@pytest.mark.parametrize("tokens", [1, 2, 3, 10])
@pytest.mark.parametrize("neighbours", [0, 3])
def test_an_eos_takes_at_most_one_extra_slot_that_is_reported_as_wasted(tokens: int, neighbours: int) -> None:
    for overlap in (False, True):
        records = run(traffic(4, [tokens] + [30] * neighbours), FCFS(), overlap=overlap).records
        wasted = int((records.steps["wasted"] * records.steps["steps"]).sum())
        assert wasted == (1 + neighbours if overlap else 0)
        summary = summarise(records, MetricOptions())
        assert summary["wasted_tokens"] == wasted
        assert summary["total_output_tokens"] == tokens + 30 * neighbours
        service = records.service
        served = ((service["last_step"] - service["first_step"] + 1) * service["output_tokens"]).sum()
        assert served == tokens + 30 * neighbours, "a wasted slot is nobody's service"


def test_an_eos_one_step_before_max_tokens_wastes_the_slot_of_the_last() -> None:
    for output, wasted in ((8, 1), (9, 1), (10, 0), (11, 0)):
        records = run(traffic(4, output, max_tokens=10), FCFS(), overlap=True).records
        assert (records.steps["wasted"] * records.steps["steps"]).sum() == wasted
        assert list(records.requests["output_tokens"]) == [min(output, 10)]


@both_loops
@pytest.mark.parametrize("batching", ["continuous", "static"])
@pytest.mark.parametrize(
    "pressure", [{}, {"blocks": 9, "block_size": 4}, {"max_num_batched_tokens": 5, "max_num_seqs": 4}]
)
def test_every_token_is_computed_from_what_it_is_computed_from_alone(
    pressure: dict[str, Any], batching: str, overlap: bool
) -> None:
    """`MemoryDevice` compares each batch with the KV that the request would have alone."""
    m = Machine(**({"overlap": overlap, "batching": batching, "max_num_seqs": 5} | pressure))
    outputs = [7, 1, 12, 3, 9, 2, 12]
    requests = [m.add(prompt=3 * i + 2, output=output) for i, output in enumerate(outputs)]
    m.drain()
    assert [r.base for r in requests] == outputs


def test_the_memory_device_sees_what_is_wrong() -> None:
    """A test of the check itself: KV in a block of another request, and a token that was lost."""
    m = Machine(overlap=True)
    a, _ = m.add(output=20), m.add(output=20)
    m.step()
    b = m.add(output=20)
    m.step()
    b.table, kept = list(a.table), b.table
    with pytest.raises(AssertionError, match=r"in two tables|is missing|still in use"):
        m.plan()
    b.table = kept
    assert isinstance(m.device, MemoryDevice)
    m.device.made[a.id] += 1
    with pytest.raises(AssertionError, match=r"token made from|is missing"):
        m.drain()
