"""Traffic replayed in real time: sent when it is due, and with the outcome that the simulator has."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from backend.api import DeviceFailed, Sampling
from backend.config import EngineConfig
from backend.costs import ConstantCost
from backend.errors import BadConfig
from backend.load import serve_traffic
from backend.realtime import RealTimeDevice
from backend.simulated import SimulatedDevice
from backend.traffic import NONE, Tenant
from policies.api import Decision, Policy, PolicyStalled
from policies.fair_share import FairShare
from policies.fcfs import FCFS
from serving_by_hand import MS, Dies, device, in_one_of_three, ordered
from traffic_by_hand import run, traffic


def serve(work, policy=None, gpu=None, *, horizon_s=None, progress=None, **engine):
    gpu = gpu or device(5)
    config = EngineConfig(**({"audit": True} | engine))
    return serve_traffic(work, policy or FCFS(), gpu, config, horizon_s=horizon_s, progress=progress).records


def test_two_thousand_requests_at_rate_200_are_sent_on_time_to_the_last():
    due = [i * 5 * MS for i in range(2000)]
    requests = serve(traffic(output=2, arrival=due), max_num_seqs=64).requests
    assert list(requests["arrival"]) == due
    late = (requests["submitted"] - requests["arrival"]).to_numpy()
    assert (late >= 0).all()
    # drift would show in each of the last sends; another process may delay one or another
    assert late[-50:].min() < 20 * MS


def test_at_rate_infinity_everything_is_there_before_the_first_step():
    records = serve(traffic(output=2, n=300), max_num_seqs=400)
    assert records.steps["running"].iloc[0] == 300


def test_a_closed_loop_sends_the_next_when_the_one_before_has_ended():
    requests = serve(traffic(output=[3, 9, 4, 2, 7, 5, 1, 6] * 5, concurrency=4), max_num_seqs=8).requests
    assert set(requests["state"]) == {"completed"}
    assert list(requests["row"]) == list(range(40))
    starts, ends = requests["arrival"].to_numpy(), np.sort(requests["ended"].to_numpy())
    assert list(starts[:4]) == [0] * 4
    assert (starts[4:] >= ends[:36]).all()  # never more than four at once
    assert np.median(starts[4:] - ends[:36]) < 50 * MS
    assert ordered(requests)


def test_clients_leave_when_they_have_enough_or_have_waited_enough():
    work = traffic(
        output=100,
        n=4,
        max_tokens=20,
        cancel_tokens=[5, NONE, NONE, NONE],
        cancel_after=[NONE, 230 * MS, NONE, NONE],
        patience=[300 * MS, NONE, 60 * MS, 60 * MS],
    )

    def check():
        records = serve(work, gpu=device(20), max_num_seqs=2)
        five, later, impatient, also = records.requests.itertuples()
        assert (five.state, five.output_tokens) == ("cancelled", 5)
        assert five.made_tokens <= 5 + 2
        assert later.state == "cancelled"
        assert 230 * MS <= later.cancel_called < 430 * MS
        assert 1 <= later.output_tokens < 14
        for r in (impatient, also):
            assert (r.state, r.first_token, r.output_tokens) == ("cancelled", NONE, 0)
            assert 60 * MS <= r.cancel_called < 260 * MS
        assert ordered(records.requests)

    in_one_of_three(check)


def many(n=60):
    """Three tenants, forced lengths, a third of the clients leave after some tokens."""
    rng = np.random.default_rng(7)
    output = rng.integers(1, 40, n)
    leaves = np.where(rng.random(n) < 0.35, rng.integers(1, 30, n), NONE)
    return traffic(
        prompt=rng.integers(1, 60, n).tolist(),
        output=output.tolist(),
        arrival=np.sort(rng.integers(0, 200, n) * MS).tolist(),
        max_tokens=np.where(rng.random(n) < 0.5, rng.integers(5, 50, n), NONE).tolist(),
        cancel_tokens=leaves.tolist(),
        tenant=rng.integers(0, 3, n).tolist(),
        tenants=[Tenant("a"), Tenant("b", 2.0), Tenant("c")],
    )


@pytest.mark.parametrize("settings", [
    {"overlap": True}, {"overlap": False}, {"batching": "static"}, {"admission": "peak"}, {"chunked_prefill": False},
], ids=lambda settings: "-".join(map(str, settings.values())))  # fmt: skip
@pytest.mark.parametrize("policy", [FCFS, FairShare])
def test_the_same_traffic_ends_the_same_on_the_simulated_and_on_the_real_clock(policy, settings):
    """The pool is small: some are preempted, where the admission rule allows that."""
    engine = {"max_num_seqs": 6, "max_num_batched_tokens": 64, "max_model_len": 64, **settings}
    simulated = run(many(), policy(), blocks=16, block_size=8, **engine).records.requests.set_index("id")
    gpu = device(1, blocks=16, block_size=8)
    real = serve(many(), policy(), gpu, **engine).requests.set_index("id").loc[simulated.index]
    pd.testing.assert_series_equal(real["state"], simulated["state"])
    pd.testing.assert_series_equal(real["finish_reason"], simulated["finish_reason"])
    cancelled = simulated["state"] == "cancelled"
    assert cancelled.sum() > 5
    difference = (real["output_tokens"] - simulated["output_tokens"]).abs()
    assert (difference[~cancelled] == 0).all()
    assert (difference[cancelled] <= 1).all()
    assert (real["detail"] == simulated["detail"]).all()
    assert ordered(real)


def test_a_static_batch_waits_for_all_who_may_still_come():
    """Four slots, a closed loop of six clients: when a batch ends, those of its members come back and fill the next."""
    work = traffic(output=[2] * 11, concurrency=6)
    steps = serve(work, max_num_seqs=4, batching="static", overlap=False).steps
    assert list(steps["chunks"][steps["chunks"] > 0]) == [4, 4, 3]


class Nobody(Policy):
    def decide(self, view):
        return Decision()


def test_a_policy_that_admits_nobody_has_stalled():
    with pytest.raises(PolicyStalled, match="Nobody admits nobody: 2 requests wait"):
        serve(traffic(n=2), Nobody())


def test_it_has_not_stalled_while_it_rejects_one_at_a_time():
    class Rejects(Policy):
        def decide(self, view):
            return Decision(reject=[(next(view.waiting), "one too many")])

    requests = serve(traffic(output=2, n=3), Rejects()).requests
    assert set(requests["state"]) == {"rejected"}


def test_it_has_not_stalled_while_a_client_may_leave():
    records = serve(traffic(n=2, patience=50 * MS), Nobody())
    assert list(records.requests["state"]) == ["cancelled", "cancelled"]


def test_a_horizon_cuts_the_run_off_and_frees_the_device():
    gpu = device(10)
    records = serve(traffic(output=1000, n=4, arrival=[0, 0, 0, 900 * MS]), gpu=gpu, horizon_s=0.3, max_num_seqs=2)
    assert records.end == 300 * MS
    assert list(records.requests["state"]) == ["unfinished"] * 3
    assert list(records.requests["scheduled"] >= 0) == [True, True, False]
    assert not gpu._known
    assert set(serve(traffic(output=3, n=4), gpu=gpu).requests["state"]) == {"completed"}


def test_a_device_that_fails_fails_the_run_at_once_with_its_own_error():
    with pytest.raises(DeviceFailed, match="batch 5: RuntimeError: the fan has stopped"):
        serve(traffic(output=100, n=4, arrival=[0, 0, 0, 60_000 * MS]), gpu=Dies(5))


def test_an_error_that_the_device_has_named_itself_is_told_as_it_is():
    with pytest.raises(DeviceFailed, match=r"^no memory for the cache$"):
        serve(traffic(output=100), gpu=Dies(2, DeviceFailed("no memory for the cache")))


def test_a_request_that_cannot_run_is_rejected_as_in_the_simulator():
    work = traffic(prompt=[5000, 4], output=[5, 5])
    for records in (serve(work), run(work, FCFS()).records):
        refused, done = records.requests.sort_values("row").itertuples()
        assert (refused.state, refused.finish_reason, done.state) == ("rejected", "refused", "completed")
        assert "5000 tokens leaves no room" in refused.detail


def test_texts_are_sent_as_texts():
    records = serve(traffic(prompt=[9, 9], output=[3, 3], prompts=["one", "seven.."]))
    assert list(records.requests["prompt_tokens"]) == [3, 7]


def test_each_request_draws_with_a_seed_of_its_own_the_same_in_every_run():
    class Remembers(RealTimeDevice):
        def open(self, work):
            super().open(work)
            seeds[-1][work.id] = work.sampling.seed

    seeds = []
    for seed in (1, 1, 2, None):
        seeds.append({})
        gpu = Remembers(ConstantCost(1), num_blocks=64, max_model_len=1024)
        sampling = Sampling(temperature=1.0, seed=seed)
        serve_traffic(traffic(output=2, n=5), FCFS(), gpu, EngineConfig(), sampling=sampling)
    first, again, other, unseeded = seeds
    assert first == again != other
    assert len(set(first.values())) == 5
    assert set(unseeded.values()) == {None}


def test_progress_is_told():
    heard = []
    serve(traffic(output=3, n=5), progress=lambda ended, n: heard.append((ended, n)))
    assert heard == [(i, 5) for i in range(1, 6)]


def test_what_cannot_run_is_refused_before_anything_runs():
    with pytest.raises(BadConfig, match="no requests"):
        serve(traffic(n=0))
    with pytest.raises(BadConfig, match="horizon_s: -1"):
        serve(traffic(), horizon_s=-1)


def test_a_device_in_virtual_time_is_refused_by_name():
    gpu = device(1)
    virtual = SimulatedDevice(gpu._simulated.cost, num_blocks=100, max_model_len=512)
    with pytest.raises(BadConfig, match="device simulated takes no token ids"):
        serve(traffic(), gpu=virtual)
    with pytest.raises(DeviceFailed, match=r"batch 1: it (ends in the future|has no token_ids)"):
        serve(traffic(prompts=["text"]), gpu=TakesText(gpu._simulated.cost, num_blocks=100, max_model_len=512))


class TakesText(SimulatedDevice):
    def encode(self, text):
        return [1, 2, 3]
