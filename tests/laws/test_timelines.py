"""The loop to the millisecond: plan 3 ms, commit 2 ms, device 10 ms, prompts of 4 tokens, all at time 0."""

from __future__ import annotations

import pandas as pd
import pytest

from backend.config import HostTimes
from backend.costs import ConstantCost
from backend.records import Records
from policies.fcfs import FCFS
from traffic_by_hand import MS, run, traffic


def ms(frame: pd.DataFrame, *columns: str) -> list[tuple[float, ...]]:
    return [tuple(row) for row in (frame[list(columns)] / MS).itertuples(index=False)]


def device(records: Records) -> list[tuple[float, ...]]:
    return ms(records.steps, "started", "ended", "committed")


def test_sync_two_requests() -> None:
    records = run(traffic(4, [3, 99], max_tokens=[-1, 2]), FCFS(), overlap=False).records
    assert device(records) == [(3, 13, 15), (18, 28, 30), (33, 43, 45)]
    assert ms(records.requests, "scheduled", "first_token", "last_token", "ended", "freed") == [
        (3, 15, 45, 45, 45),
        (3, 15, 30, 30, 30),
    ]
    assert list(records.requests["finish_reason"]) == ["stop", "length"]
    assert records.steps["wasted"].sum() == 0
    assert records.end == 45 * MS


def test_overlap_two_requests() -> None:
    records = run(traffic(4, [3, 99], max_tokens=[-1, 2]), FCFS(), overlap=True).records
    assert ms(records.steps, "planned", "started", "ended", "committed") == [
        (0, 3, 13, 15),
        (3, 13, 23, 25),
        (15, 23, 33, 35),
        (25, 33, 43, 45),
    ]
    assert list(records.steps["decodes"]) == [0, 2, 1, 1]
    assert list(records.steps["wasted"]) == [0, 0, 0, 1]
    assert ms(records.requests, "first_token", "last_token", "ended", "freed") == [(15, 35, 35, 45), (15, 25, 25, 25)]
    assert records.requests["output_tokens"].sum() == 5
    assert records.end == 35 * MS


@pytest.mark.parametrize(
    ("batching", "ends"), [("static", [(15, 15), (15, 45), (60, 75)]), ("continuous", [(15, 15), (15, 45), (30, 45)])]
)
def test_static_and_continuous(batching: str, ends: list[tuple[float, ...]]) -> None:
    records = run(traffic(4, [1, 3, 2]), FCFS(), overlap=False, batching=batching, max_num_seqs=2).records
    assert ms(records.requests, "first_token", "ended") == ends


def test_static_pads_the_slot_of_an_ended_member() -> None:
    records = run(traffic(4, [1, 3, 2]), FCFS(), overlap=False, batching="static", max_num_seqs=2).records
    assert list(zip(records.steps["decodes"], records.steps["padding"], records.steps["steps"], strict=True)) == [
        (0, 0, 1),
        (1, 1, 2),
        (0, 0, 1),
        (1, 0, 1),
    ]


def test_dynamic_starts_at_the_timeout() -> None:
    work = traffic(4, [1, 3, 2])
    records = run(work, FCFS(), overlap=False, batching="dynamic", max_num_seqs=4, batch_timeout_s=0.02).records
    assert ms(records.requests, "first_token", "ended") == [(35, 35), (35, 65), (35, 50)]
    assert ms(records.holds, "since", "until") == [(0, 20)]


@pytest.mark.parametrize(("overlap", "last_made", "freed", "made"), [(False, 28, 30, 2), (True, 33, 35, 3)])
def test_cancel_at_20_ms(overlap: bool, last_made: int, freed: int, made: int) -> None:
    records = run(traffic(4, 10, cancel_after=20 * MS), FCFS(), overlap=overlap).records
    [request] = records.requests.to_dict("records")
    assert request["state"] == "cancelled"
    assert request["ended"] == request["cancel_called"] == 20 * MS
    assert (request["output_tokens"], request["made_tokens"]) == (1, made)
    assert (request["last_made"], request["freed"]) == (last_made * MS, freed * MS)


@pytest.mark.parametrize("jump", [True, False])
@pytest.mark.parametrize(
    ("overlap", "device_ms", "end", "host", "exposed"),
    [(False, 10, 1500, 500, 500), (True, 10, 1005, 500, 5), (False, 4, 900, 500, 500)],
)
def test_host_work_is_hidden(overlap: bool, device_ms: int, end: int, host: int, exposed: int, jump: bool) -> None:
    work = traffic(4, 1000, max_tokens=100)
    records = run(work, FCFS(), cost=ConstantCost(device_ms), overlap=overlap, jump=jump).records
    assert records.end == end * MS
    assert records.steps["busy"].sum() == 100 * device_ms * MS
    assert records.steps["host"].sum() == host * MS
    assert records.steps["exposed"].sum() == exposed * MS


def test_overlap_settles_at_host_time_when_host_bound() -> None:
    records = run(traffic(4, 1000, max_tokens=100), FCFS(), cost=ConstantCost(4), overlap=True, jump=False).records
    # starts 3, 7, then every 5 ms: the 100th at 7 + 98 * 5, four more on the device, two to commit
    assert records.end == (7 + 98 * 5 + 4 + 2) * MS
    assert records.steps["busy"].sum() / records.end == pytest.approx(0.8, abs=0.005)


def test_free_host_costs_nothing() -> None:
    work = traffic(4, 1000, max_tokens=100)
    ends = {run(work, FCFS(), host=HostTimes(0, 0, 0, 0), overlap=overlap).records.end for overlap in (False, True)}
    assert ends == {1000 * MS}
