"""What clients do, and when they are told: patience, leaving after k tokens, closed loops, horizons."""

from __future__ import annotations

import pytest

from backend.config import EngineConfig, HostTimes
from backend.errors import BadConfig
from backend.simulation import simulate
from engine_by_hand import MemoryDevice, Script
from policies.api import Decision, EngineView, PolicyStalled
from policies.fcfs import FCFS
from predictors.constant import Constant
from traffic_by_hand import MS, run, traffic

both_loops = pytest.mark.parametrize("overlap", [False, True], ids=["sync", "overlap"])
jumps = pytest.mark.parametrize("jump", [False, True], ids=["stepped", "jumped"])


@both_loops
@pytest.mark.parametrize(("patience", "state"), [(12, "cancelled"), (14, "cancelled"), (15, "completed")])
def test_patience_lasts_as_long_as_it_says(patience: int, state: str, overlap: bool) -> None:
    """The first token is handed over at 15 ms, after a commit from 13 to 15: at 14 the client has left already."""
    records = run(traffic(4, 5, patience=patience * MS), FCFS(), overlap=overlap).records
    [request] = records.requests.to_dict("records")
    assert request["state"] == state
    if state == "cancelled":
        assert request["cancel_called"] == patience * MS


def test_patience_ends_with_a_first_token_that_is_the_last() -> None:
    """A cancel that is handled after the last token comes too late."""
    records = run(traffic(4, 1, patience=14 * MS), FCFS()).records
    assert list(records.requests["state"]) == ["completed"]


@both_loops
@pytest.mark.parametrize("k", range(2, 7))
def test_who_leaves_after_k_tokens_gets_k_also_if_preempted_with_the_last_in_flight(k: int, overlap: bool) -> None:
    def answer(view: EngineView) -> Decision:
        running = [r for r in view.running if r.id == "0"]
        if running and not running[0].preemptions and running[0].output_tokens == k - 1:
            return Decision(preempt=running, revisit_steps=1)
        return Decision(admit=[r for r in view.waiting if r.id == "0" or not view.num_running][:1], revisit_steps=1)

    work = traffic(4, [20, 1], cancel_tokens=[k, -1], arrival=[0, 0])
    requests = run(work, Script(answer, preemptive=True), overlap=overlap, max_num_seqs=2).records.requests
    assert list(requests["preemptions"]) == [1, 0]
    assert list(requests["output_tokens"]) == [k, 1]
    assert list(requests["state"]) == ["cancelled", "completed"]


@both_loops
def test_a_static_batch_does_not_wait_for_clients_to_lose_their_patience(overlap: bool) -> None:
    """Two clients, four slots: nobody else can come, whatever may still happen to those who wait."""
    work = traffic(4, 3, n=4, concurrency=2, patience=9000 * MS, cancel_after=9000 * MS)
    requests = run(work, FCFS(), batching="static", max_num_seqs=4, overlap=overlap).records.requests
    assert set(requests["state"]) == {"completed"}
    assert (requests["first_token"] - requests["arrival"]).max() <= 30 * MS


def test_a_static_batch_does_not_wait_for_predictions() -> None:
    work = traffic(4, 3, n=2, concurrency=2)
    requests = run(
        work, FCFS(), batching="static", max_num_seqs=4, predictor=Constant(5), predictor_latency_s=9
    ).records.requests
    assert list(requests["first_token"]) == [15 * MS] * 2


@pytest.mark.parametrize("concurrency", [None, 1, 2])
@pytest.mark.parametrize("at_once", [1, 2])
def test_a_policy_that_rejects_one_at_a_time_is_asked_until_it_is_done(concurrency: int | None, at_once: int) -> None:
    def answer(view: EngineView) -> Decision:
        waiting = list(view.waiting)
        return Decision(reject=[(request, "not today") for request in waiting[:at_once]])

    requests = run(traffic(4, 3, n=5, concurrency=concurrency), Script(answer)).records.requests
    assert list(requests["state"]) == ["rejected"] * 5
    assert list(requests["finish_reason"]) == ["rejected"] * 5
    assert list(requests["detail"]) == ["not today"] * 5
    assert list(requests["ended"]) == [0] * 5


@both_loops
def test_a_policy_that_preempts_the_only_one_is_asked_again(overlap: bool) -> None:
    def answer(view: EngineView) -> Decision:
        waiting, running = list(view.waiting), list(view.running)
        if running and not running[0].preemptions and running[0].output_tokens >= 3:
            return Decision(preempt=running)
        return Decision(admit=waiting[:1], revisit_steps=1)

    work = traffic(4, [9, 4])
    requests = run(work, Script(answer, preemptive=True), overlap=overlap, max_num_seqs=1).records.requests
    assert list(requests["state"]) == ["completed"] * 2
    assert list(requests["preemptions"]) == [1, 0]


def test_a_policy_that_admits_nobody_is_stalled_and_told_so() -> None:
    with pytest.raises(PolicyStalled, match=r"Script admits nobody: 3 requests wait, nothing runs, nothing more"):
        run(traffic(4, 3, n=3), Script(lambda view: Decision()))


def test_a_hold_ahead_is_no_stall_and_is_recorded() -> None:
    records = run(traffic(4, 2), Script(lambda view: Decision(admit=view.waiting, hold_until=20 * MS))).records
    assert list(records.requests["first_token"]) == [35 * MS]
    assert records.holds.to_numpy().tolist() == [[0, 20 * MS]]


def test_a_revisit_ahead_is_no_stall() -> None:
    def answer(view: EngineView) -> Decision:
        return Decision(admit=view.waiting if view.now >= 50 * MS else (), revisit_at=view.now + 20 * MS)

    assert list(run(traffic(4, 2), Script(answer)).records.requests["first_token"]) == [75 * MS]


@pytest.mark.parametrize("wait", ["hold_until", "revisit_at"])
def test_a_hold_or_revisit_that_is_over_is_a_stall(wait: str) -> None:
    with pytest.raises(PolicyStalled):
        run(traffic(4, 2), Script(lambda view: Decision(**{wait: view.now})))


@both_loops
@jumps
@pytest.mark.parametrize("horizon_ms", [1, 14, 15, 40, 41, 42, 43, 44, 45, 150, 151, 152, 153])
def test_nothing_happens_after_the_horizon(horizon_ms: int, overlap: bool, jump: bool) -> None:
    """Arrivals, cancels and waits of every millisecond up to long after it."""
    work = traffic(4, 20, n=200, arrival=[i * MS for i in range(200)], cancel_after=[-1, 3 * MS] * 100)
    records = run(work, FCFS(), overlap=overlap, jump=jump, max_num_seqs=8, horizon_s=horizon_ms / 1000).records
    assert records.end == horizon_ms * MS
    requests = records.requests
    assert len(requests) == horizon_ms + 1, "whoever arrived by then, at the horizon itself included"
    for column in ("arrival", "first_token", "last_token", "ended", "cancel_called"):
        assert requests[column].max() <= records.end, column
    assert not len(records.backlog) or records.backlog["until"].max() <= records.end
    assert not len(records.steps) or records.steps["committed"].max() <= records.end
    assert (requests["state"] == "unfinished").any()


@both_loops
def test_a_closed_loop_sends_the_next_when_a_request_is_refused(overlap: bool) -> None:
    """Every other prompt is too long; each of two clients goes on at once."""
    work = traffic([4, 9999] * 3, 3, concurrency=2)
    requests = run(work, FCFS(), overlap=overlap).records.requests
    assert list(requests["state"]) == ["completed", "rejected"] * 3
    assert list(requests["arrival"][:3]) == [0, 0, 0]
    first_end = requests["ended"].iloc[0]
    assert set(requests["arrival"][3:]) <= {first_end, *requests["ended"]}


def test_a_closed_loop_with_a_full_queue_refuses_and_goes_on() -> None:
    work = traffic(4, 3, n=12, concurrency=5)
    requests = run(work, FCFS(), max_num_seqs=1, max_waiting=2).records.requests
    assert len(requests) == 12
    assert set(requests["state"]) == {"completed", "rejected"}
    refused = requests[requests["state"] == "rejected"]
    assert set(refused["detail"]) == {"the queue is full: 2 wait (engine.max_waiting)"}
    assert (refused["ended"] == refused["arrival"]).all()


def test_the_device_is_not_told_of_refused_requests() -> None:
    device = MemoryDevice(blocks=100, block_size=16, model_len=64)
    work = traffic([4, 99, 4, 99], 2)
    simulate(work, FCFS(), device, EngineConfig(), host=HostTimes())
    assert list(device.made) == ["0", "2"]
    assert device._work == {}


def test_a_prediction_that_comes_after_the_end_changes_nothing() -> None:
    policy = Script(needs=frozenset({"prediction"}))
    work = traffic(4, [1, 30], cancel_after=[-1, 40 * MS])
    requests = run(work, policy, predictor=Constant(5), predictor_latency_s=0.1).records.requests
    assert list(requests["predicted_tokens"]) == [-1, -1]
    assert not [line for line in policy.log if line.startswith("prediction")]


@jumps
def test_revisit_steps_counts_steps(jump: bool) -> None:
    """Asked before step 1; then every seven steps as long as somebody waits."""
    asked: list[int] = []

    def answer(view: EngineView) -> Decision:
        asked.append(view.step)
        return Decision(admit=list(view.waiting)[:1] if view.step in (1, 22) else (), revisit_steps=7)

    run(traffic(4, [40, 2]), Script(answer), jump=jump, host=HostTimes(0, 0, 0, 0))
    assert asked == [1, 8, 15, 22]


def test_ids_twice_in_one_workload_are_refused_before_anything_runs() -> None:
    with pytest.raises(BadConfig, match="id 'b' is there twice"):
        run(traffic(4, 2, n=3, ids=["a", "b", "b"]), FCFS())
