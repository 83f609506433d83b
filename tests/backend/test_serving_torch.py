"""The serving driver on a real model: the model's own ids, and the simulator's outcomes."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import numpy as np
import pytest

from backend.api import Sampling
from backend.config import EngineConfig
from backend.errors import Refused
from backend.load import serve_traffic
from backend.torch_device.device import TorchDevice
from policies.fair_share import FairShare
from policies.fcfs import FCFS
from serving_by_hand import ordered, server, within
from torch_models import VOCABULARY, generated, prompts, tiny
from traffic_by_hand import end_alike, leaving_early, run


@pytest.fixture(scope="module")
def model():
    return tiny("llama")


@pytest.fixture(scope="module")
def gpu(model):
    device = TorchDevice(model, num_blocks=60, block_size=8, threads=1)
    yield device
    device.shutdown()


ASKED = prompts(1, 7, 33, 12, 20, 5, seed=4)


@pytest.fixture(scope="module")
def solo(model):
    return [generated(model, prompt, 12) for prompt in ASKED]


@pytest.mark.parametrize("overlap", [False, True])
def test_every_stream_has_the_models_own_ids_while_neighbours_leave(solo, gpu, overlap):
    greedy = Sampling(ignore_eos=True)

    async def answer(engine, prompt, leave_after):
        async with aclosing(engine.generate(prompt, 12, sampling=greedy)) as pieces:
            got = []
            async for piece in pieces:
                got.append(piece.token)
                if len(got) == leave_after:
                    break
            return got

    async def main():
        async with server(gpu, overlap=overlap, max_num_seqs=4, max_num_batched_tokens=16) as engine:
            leave = [12, 3, 12, 1, 12, 12]
            got = await asyncio.gather(*(answer(engine, p, n) for p, n in zip(ASKED, leave, strict=True)))
            await engine.close(drain=True)
            assert engine.engine.pool.free == 60
        assert got == [ids[:n] for ids, n in zip(solo, leave, strict=True)]
        return engine.records()

    records = within(60, main())
    assert sorted(records.requests["state"]) == ["cancelled"] * 2 + ["completed"] * 4
    assert ordered(records.requests)
    assert records.device_kind == "cpu"


def test_a_seed_draws_the_same_ids_alone_and_beside_others(gpu):
    prompt, *others = prompts(9, 4, 17, 30, seed=5)
    drawn = Sampling(temperature=0.8, top_k=40, top_p=0.9, seed=42, ignore_eos=True)

    async def ids(engine, prompt, sampling):
        return [piece.token async for piece in engine.generate(prompt, 20, sampling=sampling)]

    async def main(neighbours):
        async with server(gpu, max_num_seqs=4, max_num_batched_tokens=16) as engine:
            noise = Sampling(temperature=1.5, ignore_eos=True)
            first, *_ = await asyncio.gather(
                ids(engine, prompt, drawn), *(ids(engine, other, noise) for other in neighbours)
            )
        return first

    alone = within(60, main([]))
    assert len(alone) == 20
    assert within(60, main(others)) == alone


@pytest.mark.parametrize("policy", [FCFS, FairShare])
def test_the_same_traffic_ends_the_same_on_the_simulated_gpu_and_on_a_model(gpu, policy):
    work = leaving_early(np.random.default_rng(11), 24)
    engine = {"max_num_seqs": 6, "max_num_batched_tokens": 32, "max_model_len": 128}
    simulated = run(work, policy(), blocks=60, block_size=8, **engine).records.requests.set_index("id")
    records = serve_traffic(work, policy(), gpu, EngineConfig(audit=True, **engine)).records
    end_alike(records.requests.set_index("id"), simulated)
    assert ordered(records.requests)


def test_a_prompt_that_the_model_does_not_know_fails_alone(solo, gpu):
    good = ASKED[5]

    async def main():
        async with server(gpu) as engine:
            neighbour = asyncio.create_task(collect(engine, good))
            await asyncio.sleep(0)
            with pytest.raises(Refused, match=rf"prompt_ids outside 0..{VOCABULARY - 1}: 5..{VOCABULARY}"):
                await collect(engine, [5, VOCABULARY])
            with pytest.raises(ValueError, match="torch has no tokenizer"):
                await collect(engine, "text")
            assert await neighbour == solo[5][:10]
        return engine.records()

    async def collect(engine, prompt):
        return [piece.token async for piece in engine.generate(prompt, 10, sampling=Sampling(ignore_eos=True))]

    assert sorted(within(60, main()).requests["state"]) == ["completed", "failed"]
