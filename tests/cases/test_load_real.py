"""Figures of runs by the clock: what a slow first step, the system's clock and slow clients may not spoil."""

from __future__ import annotations

import sys
import time
from time import sleep

import numpy as np
import pytest

from backend.api import Sampling
from backend.config import EngineConfig
from backend.costs import ConstantCost
from backend.load import serve_traffic
from backend.realtime import RealTimeDevice
from backend.torch_device.device import TorchDevice
from bench.metrics import MetricOptions, summarise
from policies.fair_share import FairShare
from policies.fcfs import FCFS
from policies.multi_bin import MultiBin
from policies.oracle_length import OracleLength
from policies.ssjf import SSJF
from predictors.guard import Guarded
from predictors.oracle import Oracle
from serving_by_hand import MS, in_one_of_three, ordered, row, server, within
from torch_models import prompts, tiny
from traffic_by_hand import end_alike, leaving_early, run, traffic

FREE = Sampling(ignore_eos=True)


class SlowToStart(RealTimeDevice):
    """The first step takes 0.4 s."""

    def __init__(self):
        super().__init__(ConstantCost(2), num_blocks=1000, max_model_len=512)

    def _run(self, output):
        if output.number == 1:
            sleep(0.4)
        return super()._run(output)


def test_a_warm_up_keeps_a_slow_first_step_out_of_the_ttft():
    """Six at once, one of them long; 25 later. The long one is over the border."""
    arrivals = [0] * 6 + [(700 + 10 * i) * MS for i in range(25)]
    outputs = [200, 3, 3, 3, 3, 3, *[4] * 25]

    def check():
        work = traffic(output=outputs, arrival=arrivals)
        records = serve_traffic(work, FCFS(), SlowToStart(), EngineConfig(audit=True)).records
        cold = summarise(records, MetricOptions())
        warm = summarise(records, MetricOptions(warmup_requests=5))
        assert (cold["n_ttft"], warm["n_ttft"]) == (31, 25)
        assert cold["p99_ttft_ms"] > 400
        assert warm["p99_ttft_ms"] < 300
        # after the border: what the long one makes then, and all of the 25
        assert 25 * 4 + 180 < warm["output_throughput_all"] * warm["duration"] < 25 * 4 + 200
        with pytest.raises(ValueError, match=r"metrics\.warmup_requests=31"):
            summarise(records, MetricOptions(warmup_requests=31))

    in_one_of_three(check)


@pytest.fixture(scope="module")
def gpu():
    device = TorchDevice(tiny("llama"), num_blocks=60, block_size=8, threads=1)
    yield device
    device.shutdown()


def test_the_system_clock_set_back_makes_nothing_negative(gpu, monkeypatch):
    """Whatever reads it, by whatever name, sees it an hour back from the third token on."""
    seconds, nanoseconds = time.time, time.time_ns
    told = {seconds: lambda: seconds() - 3600, nanoseconds: lambda: nanoseconds() - 3600 * 10**9}

    def set_back():
        for module in [module for name, module in sys.modules.items() if name == "time" or name.startswith("backend.")]:
            for name, value in list(vars(module).items()):
                if value is seconds or value is nanoseconds:
                    monkeypatch.setattr(module, name, told[value])

    async def main():
        async with server(gpu) as engine:
            streams = [await engine.submit(prompt, 30, sampling=FREE) for prompt in prompts(5, 40, 9)]
            await streams[0].reach(3)
            before = time.time()
            set_back()
            assert time.time() < before - 3000
            streams[2].cancel()
            assert len([piece async for piece in streams[0]]) == 30
            await streams[1].reach(30)
        return engine.records()

    records = within(20, main())
    assert ordered(records.requests)
    times = records.requests[["arrival", "submitted", "scheduled", "first_token", "last_token", "ended", "freed"]]
    assert (times.to_numpy() < 20 * 10**12).all()
    steps = records.steps
    assert (steps[["planned", "started", "busy", "host", "exposed", "gap_time", "kv_time"]] >= 0).all(axis=None)
    assert (steps["started"] <= steps["ended"]).all()
    assert (steps["ended"] <= steps["committed"]).all()
    figures = summarise(records, MetricOptions())
    numbers = [value for value in figures.values() if isinstance(value, float)]
    assert len(numbers) > 20
    assert min(numbers) >= 0


class SlowToTokenize(TorchDevice):
    def encode(self, text):
        sleep(0.2)
        return [int(word) for word in text.split()]


def test_slow_tokenizing_raises_the_ttft_by_its_time():
    gpu = SlowToTokenize(tiny("llama"), num_blocks=30, threads=1)

    async def main():
        async with server(gpu) as engine:
            for name, asked in (("text", "5 6 7"), ("ids", [5, 6, 7])):
                await anext(engine.generate(asked, 1, request_id=name))
        return engine.records()

    def check():
        requests = within(20, main()).requests
        text, ids = row(requests, "text"), row(requests, "ids")
        slower = (text.first_token - text.arrival) - (ids.first_token - ids.arrival)
        assert 150 < slower / MS < 600
        assert ordered(requests)

    in_one_of_three(check)
    gpu.shutdown()


POLICIES = {
    "fcfs": FCFS,
    "multi_bin": lambda: MultiBin(bins=2, max_wait_s=0.05),
    "fair_share": FairShare,
    "oracle_length": OracleLength,
    "ssjf": SSJF,
}


@pytest.mark.parametrize("overlap", [False, True], ids=["sync", "overlap"])
@pytest.mark.parametrize("policy", POLICIES)
def test_one_workload_ends_the_same_on_the_simulated_gpu_and_on_a_model(gpu, policy, overlap):
    """Lengths forced, cancels by number of tokens; KV never passes its limit on either."""
    work = leaving_early(np.random.default_rng(5), 24)
    engine = {"max_num_seqs": 6, "max_num_batched_tokens": 32, "max_model_len": 128, "overlap": overlap}
    known = run(work, POLICIES[policy](), blocks=60, block_size=8, predictor=Guarded(Oracle(), 40), **engine)
    simulated = known.records.requests.set_index("id")
    config = EngineConfig(audit=True, **engine)
    records = serve_traffic(work, POLICIES[policy](), gpu, config, predictor=Guarded(Oracle(), 40)).records
    end_alike(records.requests.set_index("id"), simulated)
    assert ordered(records.requests)
    assert records.steps["kv_blocks"].max() <= 60
    assert (records.steps["kv_tokens"] <= 8 * records.steps["kv_blocks"]).all()
