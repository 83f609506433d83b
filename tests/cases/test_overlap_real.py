"""What overlap may not change on a real model, and what it may: when things happen, and one wasted slot."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from backend.api import Sampling
from backend.torch_device.device import TorchDevice
from bench.metrics import MetricOptions, summarise
from policies.api import Decision
from policies.fcfs import FCFS
from serving_by_hand import server, within
from torch_models import generated, prompts, tiny
from torch_pump import Ask, Pump

FREE = Sampling(ignore_eos=True)
PROMPTS = prompts(4, 9, 20, 6, 15, 11, seed=2)
both_loops = pytest.mark.parametrize("overlap", [False, True], ids=["sync", "overlap"])


@pytest.fixture(scope="module")
def model():
    return tiny("llama")


@pytest.fixture
def gpu(model):
    device = TorchDevice(model, num_blocks=64, block_size=8, threads=1)
    yield device
    device.shutdown()


async def ids(engine, prompt, **settings):
    return [piece.token async for piece in engine.generate(prompt, sampling=FREE, **settings)]


def served(gpu, overlap, *prompts, policy=None, size=8, **settings):
    """Answers and records of these together."""

    async def main():
        async with server(gpu, policy, overlap=overlap, max_num_seqs=size) as engine:
            got = await asyncio.gather(*(ids(engine, prompt, **settings) for prompt in prompts))
        return got, engine.records()

    return within(20, main())


def test_preemption_counts_of_the_two_loops_are_comparable(model):
    """Ten requests of 3 + 24 tokens come to need 7 blocks of 4 each; eight run at once."""
    asks = [Ask(prompt, 24, FREE) for prompt in prompts(*[3] * 10, seed=8)]
    expected = [generated(model, ask.prompt, 24) for ask in asks]
    counts = {False: 0, True: 0}
    for blocks in (14, 18, 22, 26, 30):
        for overlap in counts:
            small = TorchDevice(model, num_blocks=blocks, block_size=4, threads=1)
            pump = Pump(small, overlap)
            assert [answer.ids for answer in pump.run(asks)] == expected
            small.shutdown()
            counts[overlap] += pump.preemptions
    assert counts[False] > 20
    assert abs(counts[True] - counts[False]) <= 0.15 * counts[False]


@both_loops
@pytest.mark.parametrize("ends", [{"max_tokens": 1}, {"forced_output_tokens": 1}], ids=["length", "stop"])
def test_one_token_has_no_time_per_token(gpu, model, ends, overlap):
    [got], records = served(gpu, overlap, PROMPTS[0], **ends)
    assert got == generated(model, PROMPTS[0], 1)
    [request] = records.requests.to_dict("records")
    assert (request["output_tokens"], request["state"]) == (1, "completed")
    assert request["first_token"] == request["last_token"] == request["ended"]
    summary = summarise(records, MetricOptions())
    assert (summary["n_tpot"], summary["mean_tpot_ms"], summary["n_itl"], summary["n_ttft"]) == (0, None, 0, 1)


@both_loops
def test_prompt_4_and_2_outputs_write_5_tokens_of_kv(gpu, model, overlap):
    [got], records = served(gpu, overlap, PROMPTS[0], max_tokens=2)
    assert got == generated(model, PROMPTS[0], 2)
    shape = model.config
    numbers = shape.num_hidden_layers * 2 * shape.num_key_value_heads * shape.head_dim
    assert int((gpu._cache.data != 0).sum()) == 5 * numbers
    assert list(records.steps["steps"]) == [1, 1]


@both_loops
@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_a_finish_by_length_takes_no_extra_step_and_an_eos_one_wasted_slot(gpu, model, count, overlap):
    for ends, extra in (({"max_tokens": count}, 0), ({"forced_output_tokens": count}, int(overlap))):
        [got], records = served(gpu, overlap, PROMPTS[1], **ends)
        assert got == generated(model, PROMPTS[1], count)
        assert records.steps["steps"].sum() == count + extra
        summary = summarise(records, MetricOptions())
        assert (summary["wasted_tokens"], summary["total_output_tokens"]) == (extra, count)
        made = records.service["output_tokens"] * (records.service["last_step"] - records.service["first_step"] + 1)
        assert made.sum() == count, "a wasted slot is nobody's service"


class Watches(FCFS):
    """Asked at every step; keeps each request's tokens as it sees them."""

    preemptive = True

    def __init__(self):
        super().__init__()
        self.seen = []

    def decide(self, view):
        self.seen.append({r.id: (r.output_tokens, r.in_flight_tokens) for r in (*view.running, *view.waiting)})
        return Decision(admit=self._in_order(), revisit_steps=1)


@both_loops
def test_a_policy_sees_tokens_that_are_out_and_never_one_that_is_on_its_way(gpu, model, overlap):
    policy = Watches()

    async def main():
        async with server(gpu, policy, overlap=overlap, max_num_seqs=2) as engine:
            streams = [await engine.submit(p, 12, sampling=FREE, request_id=str(i)) for i, p in enumerate(PROMPTS)]
            made = []

            def decide(view, asked=policy.decide):
                made.append({stream.id: stream.made for stream in streams if not stream.state})
                return asked(view)

            policy.decide = decide
            return made, [[piece.token async for piece in stream] for stream in streams]

    made, got = within(20, main())
    assert got == [generated(model, prompt, 12) for prompt in PROMPTS]
    assert len(policy.seen) == len(made) > 24
    for handed_over, seen in zip(made, policy.seen, strict=True):
        assert {name: out for name, (out, _) in seen.items()} == handed_over
    flying = np.array([flight for seen in policy.seen for _, flight in seen.values()])
    assert set(flying.tolist()) == ({0, 1} if overlap else {0})
