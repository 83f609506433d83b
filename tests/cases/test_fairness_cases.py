"""Who goes first, who gives way, and who never comes to his turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import pytest

from backend.config import HostTimes
from backend.costs import LinearCost
from backend.traffic import Tenant
from bench.metrics import MetricOptions, summarise
from policies.api import Key, Policy, PriorityPolicy, RequestView, Time
from policies.fair_share import FairShare
from policies.fcfs import FCFS
from policies.multi_bin import MultiBin
from policies.oracle_length import OracleLength
from predictors.api import Prediction, PredictionInput, Predictor
from predictors.oracle import Oracle
from traffic_by_hand import MS, run, traffic

both_loops = pytest.mark.parametrize("overlap", [False, True], ids=["sync", "overlap"])


class Urgent(PriorityPolicy):
    """Smaller priority first; gives a slot to nobody but a more urgent one."""

    preemptive = True

    def key(self, request: RequestView, now: Time) -> Key:
        return (request.priority,)


class Rekeyed(FCFS):
    static = False


POLICIES: dict[str, Callable[[], Policy]] = {
    "fcfs": FCFS,
    "rekeyed": Rekeyed,
    "oracle_length": OracleLength,
    "multi_bin": MultiBin,
    "multi_bin_by_bin": lambda: MultiBin(order="bin_by_bin", batch_size=3),
    "fair_share": FairShare,
    "fair_share_predicted": lambda: FairShare(use_predictions=True),
    "urgent": Urgent,
}
every_policy = pytest.mark.parametrize("make", POLICIES.values(), ids=POLICIES.keys())


class Says(Predictor):
    def __init__(self, expected: float) -> None:
        self.expected = expected

    def predict(self, inputs: Sequence[PredictionInput]) -> list[Prediction]:
        return [Prediction(self.expected, self.expected, "says") for _ in inputs]


@every_policy
@both_loops
@pytest.mark.parametrize("expected", [20.0, math.nan, math.inf])
def test_a_hundred_equal_requests_go_in_order_of_submission(
    make: Callable[[], Policy], overlap: bool, expected: float
) -> None:
    requests = run(
        traffic(4, 3, n=100), make(), overlap=overlap, max_num_seqs=4, predictor=Says(expected)
    ).records.requests
    assert set(requests["state"]) == {"completed"}
    assert (np.diff(requests["scheduled"]) >= 0).all(), "by number: nobody overtakes"
    assert (np.diff(requests["first_token"]) >= 0).all()


@both_loops
@pytest.mark.parametrize("pressure", [False, True], ids=["slot", "blocks"])
def test_an_urgent_one_comes_before_the_twelfth_token_of_the_other(pressure: bool, overlap: bool) -> None:
    """One slot; or slots enough, and a pool that the other fills. Token 10 is out at 150 ms, under overlap at 105."""
    at = 105 if overlap else 150
    prompts = [60, 100] if pressure else [4, 4]  # of the 10 blocks the other has 5, and 7 are wanted
    work = traffic(prompts, [100, 5], arrival=[0, at * MS], priority=[5, 1], max_tokens=[100, 5])
    settings = {"blocks": 10, "max_num_seqs": 4} if pressure else {"max_num_seqs": 1}
    records = run(work, Urgent(), overlap=overlap, jump=False, **settings).records
    other, urgent = records.requests.iloc[0], records.requests.iloc[1]
    assert (other["preemptions"], urgent["preemptions"]) == (1, 0)
    assert list(records.requests["output_tokens"]) == [100, 5]
    assert urgent["first_token"] < times_of_tokens(records.steps, 12, before=urgent["first_token"])


def times_of_tokens(steps: pd.DataFrame, count: int, before: int) -> float:
    """When the first request, alone until then, has had `count` tokens; infinity if not before that time."""
    committed = steps.loc[steps["committed"] < before, ["committed", "tokens"]]
    done = committed["tokens"].cumsum() >= count
    return float(committed.loc[done, "committed"].min()) if done.any() else math.inf


@both_loops
def test_equal_priorities_never_preempt_each_other(overlap: bool) -> None:
    work = traffic(4, [100, 5], arrival=[0, 105 * MS], priority=1)
    requests = run(work, Urgent(), overlap=overlap, max_num_seqs=1).records.requests
    assert list(requests["preemptions"]) == [0, 0]
    assert requests["scheduled"].iloc[1] >= requests["last_token"].iloc[0] - 10 * MS


@both_loops
@pytest.mark.parametrize("chunked", [True, False])
def test_a_decoding_request_gets_a_token_every_step_whatever_prompts_come(chunked: bool, overlap: bool) -> None:
    """K = 1: decodes are planned before prefill. 20 prompts of 1,000 take 80 steps of 256 tokens."""
    prompts = [4] + [1000] * 20
    arrival = [0] + [30 * MS + i * 25 * MS for i in range(20)]
    work = traffic(prompts, [50] + [5] * 20, arrival=arrival)
    records = run(
        work,
        FCFS(),
        overlap=overlap,
        max_num_batched_tokens=256 if chunked else 4096,
        chunked_prefill=chunked,
        max_num_seqs=32,
    ).records
    first = records.requests.iloc[0]
    step = 10 if overlap else 15
    assert first["preemptions"] == 0
    assert first["last_token"] - first["first_token"] == 49 * step * MS
    assert set(records.requests["state"]) == {"completed"}


def order_of(records_requests: pd.DataFrame, since: Time, count: int) -> list[str]:
    """Tenants of the `count` requests that were started first from `since` on."""
    later = records_requests[records_requests["scheduled"] >= since].sort_values(["scheduled", "number"])
    return later["tenant"].head(count).tolist()


@both_loops
def test_a_newcomer_shares_equally_with_one_who_was_served_ten_thousand(overlap: bool) -> None:
    """A has 10,000 tokens of service when B joins; both are backlogged: the next 20 starts split 10/10."""
    each = 20 + 2 * 40
    join = 50 * 40 * (10 if overlap else 15) * MS  # two at a time, 40 steps each
    arrival = [0] * 160 + [join] * 60
    work = traffic(20, 99, n=220, arrival=arrival, max_tokens=40, tenant=[0] * 160 + [1] * 60, tenants=("a", "b"))
    requests = run(work, FairShare(), overlap=overlap, max_num_seqs=2).records.requests
    assert 9_600 <= (requests["last_token"] <= join).sum() * each <= 10_000, "what A has had by then"
    started = order_of(requests, join, 20)
    assert 9 <= started.count("b") <= 11


@both_loops
@pytest.mark.parametrize("weights", [(1, 1, 1, 1, 1), (1, 1, 1, 1, 2)])
def test_a_newcomer_among_three_busy_tenants_and_one_who_left(weights: tuple[float, ...], overlap: bool) -> None:
    """d's only request was cancelled: it counts for nothing. The newcomer gets 5 of 20, with twice the weight 8."""
    tenant = [i % 3 for i in range(240)] + [3] + [4] * 60
    join = 2 * 10**12
    arrival = [0] * 240 + [MS] + [join] * 60
    work = traffic(
        20,
        40,
        n=len(tenant),
        arrival=arrival,
        tenant=tenant,
        tenants=[Tenant(name, weight) for name, weight in zip("abcde", weights, strict=True)],
        cancel_after=[-1] * 240 + [100 * MS] + [-1] * 60,
    )
    requests = run(work, FairShare(), overlap=overlap, max_num_seqs=2, block_size=4).records.requests
    assert requests.loc[requests["tenant"] == "d", "state"].tolist() == ["cancelled"]
    started = order_of(requests, join, 20)
    share = 20 * weights[4] / (3 + weights[4])
    assert abs(started.count("e") - share) <= 1
    assert all(abs(started.count(t) - (20 - share) / 3) <= 2 for t in "abc")


def at_load(load: float, n: int, longest: int, seed: int = 0) -> dict[str, object]:
    """Short requests of 20 tokens in two slots of 10 ms a step: 10 a second can be served; a long one comes early."""
    rng = np.random.default_rng(seed)
    gaps = rng.exponential(1e12 / (10 * load), n)
    arrival = np.sort(np.append(np.cumsum(gaps), gaps.sum() * 0.1)).astype(np.int64)
    long = int(np.argmin(np.abs(arrival - gaps.sum() * 0.1)))
    output = np.full(n + 1, 20)
    output[long] = longest
    return {"long": long, "work": traffic(4, output.tolist(), arrival=arrival.tolist(), max_tokens=output.tolist())}


@every_policy
def test_at_load_0_7_everybody_finishes(make: Callable[[], Policy]) -> None:
    case = at_load(0.7, 200, 400)
    records = run(
        case["work"],
        make(),
        max_num_seqs=2,
        host=HostTimes(0, 0, 0, 0),
        predictor=Oracle(),  # type: ignore[arg-type]
    ).records
    assert set(records.requests["state"]) == {"completed"}
    assert len(records.requests) == 201


def test_at_load_1_2_shortest_first_starves_the_long_one_and_the_report_shows_it() -> None:
    """Without ageing: whoever is shorter goes first, and the queue never empties."""
    case = at_load(1.2, 400, 400)
    summaries, waits = {}, {}
    for name, policy in (("fcfs", FCFS()), ("shortest", OracleLength())):
        records = run(case["work"], policy, max_num_seqs=2, host=HostTimes(0, 0, 0, 0)).records  # type: ignore[arg-type]
        summaries[name] = summarise(records, MetricOptions())
        request = records.requests.iloc[int(case["long"])]  # type: ignore[call-overload]
        waits[name] = (request["scheduled"] - request["arrival"]) / 1e9
        if name == "shortest":
            later = records.requests["arrival"] > request["arrival"]
            overtaken = (later & (records.requests["scheduled"] < request["scheduled"])).sum()
            assert overtaken > 200
            assert summaries[name]["max_queue_wait_ms"] == waits[name]
    assert waits["shortest"] > 10 * waits["fcfs"]
    assert summaries["shortest"]["max_queue_wait_ms"] > 2 * summaries["fcfs"]["max_queue_wait_ms"]
    assert summaries["shortest"]["mean_queue_wait_ms"] <= summaries["fcfs"]["mean_queue_wait_ms"]


@both_loops
def test_the_oldest_running_request_always_progresses_under_pressure(overlap: bool) -> None:
    """Blocks for one and a half: the queue goes through in order, and nobody is preempted for ever."""
    work = traffic(10, 60, n=12, arrival=[i * MS for i in range(12)])
    requests = run(
        work, FCFS(), overlap=overlap, blocks=26, block_size=4, max_num_seqs=6, cost=LinearCost(10, 1, 0)
    ).records.requests
    assert set(requests["state"]) == {"completed"}
    assert requests["preemptions"].iloc[0] == 0
    assert (np.diff(requests["ended"]) >= 0).all()
