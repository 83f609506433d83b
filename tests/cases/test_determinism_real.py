"""The ids of a real model are those of `generate`, through the server: under every policy, whatever happens around."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest

from backend.api import Sampling
from backend.torch_device.device import TorchDevice
from policies.api import Decision
from policies.fair_share import FairShare
from policies.fcfs import FCFS
from policies.multi_bin import MultiBin
from policies.oracle_length import OracleLength
from policies.ssjf import SSJF
from predictors.guard import Guarded
from predictors.oracle import Oracle
from serving_by_hand import server, within
from torch_models import generated, prompts, tiny
from torch_pump import Ask, Pump, once_dispatched

FREE = Sampling(ignore_eos=True)
PROMPTS = prompts(1, 7, 33, 16, 50, 3, 24, 12)
LENGTHS = [12, 14, 10, 13, 12, 11, 12, 1]
MOST = 20
POLICIES = {
    "fcfs": FCFS,
    "multi_bin": lambda: MultiBin(bins=2, batch_size=3, max_wait_s=0.002),
    "fair_share": FairShare,
    "oracle_length": OracleLength,
    "ssjf": SSJF,
}
both_loops = pytest.mark.parametrize("overlap", [False, True], ids=["sync", "overlap"])


@pytest.fixture(scope="module", params=["llama", "qwen3", "gpt2"])
def family(request):
    return request.param


@pytest.fixture(scope="module")
def solo(family):
    model = tiny(family)
    return [generated(model, prompt, MOST) for prompt in PROMPTS]


@pytest.fixture(scope="module")
def gpu(family):
    device = TorchDevice(tiny(family), num_blocks=80, block_size=8, threads=1)
    yield device
    device.shutdown()


@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "whole"])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_in_batches_of_one_to_eight(family, solo, gpu, policy, chunked):
    async def ids(engine, i):
        pieces = engine.generate(PROMPTS[i], LENGTHS[i], request_id=str(i), tenant="ab"[i % 2], sampling=FREE)
        return [piece.token async for piece in pieces]

    async def main(overlap, size):
        settings = {"overlap": overlap, "max_num_seqs": size, "chunked_prefill": chunked}
        knows = {"predictor": Guarded(Oracle(), 40), "truth": lambda request: LENGTHS[int(request.id)]}
        budget = 40 if chunked else 256
        async with server(gpu, POLICIES[policy](), max_num_batched_tokens=budget, **settings, **knows) as engine:
            got = await asyncio.gather(*(ids(engine, i) for i in range(len(PROMPTS))))
        assert got == [alone[:length] for alone, length in zip(solo, LENGTHS, strict=True)]
        return engine.records().steps

    sizes = [1, 2, 4, 8] if family == "llama" or policy == "fcfs" else [3, 8]
    for overlap, size in product([False, True], sizes):
        steps = within(30, main(overlap, size))
        assert min(size, 6) <= (steps["decodes"] + steps["chunks"]).max() <= size
        assert steps["prefill_tokens"].max() <= (40 if chunked else 256)
        assert chunked or steps["chunks"].sum() == len(PROMPTS)


@both_loops
def test_preempted_right_after_dispatching_any_step(solo, gpu, overlap):
    """Prompts of 7, 33 and 16 in chunks of 12 at most: the second is in every step."""
    asks = [Ask(prompt, MOST, FREE) for prompt in PROMPTS[1:4]]
    for step in range(1, MOST + 2):
        pump = Pump(gpu, overlap, max_num_batched_tokens=12, max_num_seqs=3)
        pump.planning = once_dispatched(step, "1", lambda engine, request: engine.preempt(request))
        assert [answer.ids for answer in pump.run(asks)] == solo[1:4], step
        assert pump.preemptions == 1


class PreemptsAt(FCFS):
    """Takes the request "second" out of its slot when it has made so many tokens; asked as long as somebody waits."""

    preemptive = True

    def __init__(self, tokens):
        super().__init__()
        self.tokens = tokens

    def decide(self, view):
        victims = [r for r in view.running if r.id == "second" and r.output_tokens == self.tokens and not r.preemptions]
        return Decision(preempt=victims, admit=self._in_order(), revisit_steps=1)


@both_loops
@pytest.mark.parametrize("chunk", [16, 64])
def test_preempted_at_any_token_of_its_stream(solo, gpu, chunk, overlap):
    async def main(token):
        policy = PreemptsAt(token)
        async with server(gpu, policy, overlap=overlap, max_num_seqs=3, max_num_batched_tokens=chunk) as engine:
            limits = {"first": MOST, "second": 12, "third": MOST, "waits": 3}
            streams = [
                await engine.submit(prompt, limit, request_id=name, sampling=FREE)
                for prompt, (name, limit) in zip(PROMPTS[1:5], limits.items(), strict=True)
            ]
            got = [[piece.token async for piece in stream] for stream in streams]
        assert got == [ids[:limit] for ids, limit in zip(solo[1:5], limits.values(), strict=True)], token
        return engine.records().requests

    for token in range(int(chunk == 64), 12):  # a prompt that is not cut has its first token when it is first seen
        preemptions = within(30, main(token))["preemptions"]
        assert list(preemptions) == [0, int(token < 11 or not overlap), 0, 0]


@both_loops
def test_after_neighbours_are_cancelled_at_any_token(solo, gpu, overlap):
    async def main():
        async with server(gpu, overlap=overlap, max_num_seqs=3, max_num_batched_tokens=16) as engine:
            for token in range(12):
                left, stayed, later = [await engine.submit(p, 12, sampling=FREE) for p in PROMPTS[1:4]]
                await left.reach(token)
                left.cancel()
                await later.reach(token + 1)
                later.cancel()
                assert [piece.token async for piece in stayed] == solo[2][:12]
                assert left.state == "cancelled"
                assert left.made == token
        return engine.records()

    states = within(30, main()).requests["state"].value_counts()
    assert states["completed"] in (12, 13)  # the last one may have its twelfth token by then
    assert states.sum() == 36


@pytest.mark.parametrize("budget", [3, 64])
def test_an_end_of_sequence_inside_a_prompt_does_not_stop_it(gpu, family, budget):
    """The end is declared and heeded: at the edges of chunks and as the last token of the prompt, too."""
    ends = [[2], [5, 2, 9], [2, 2, 2, 2], [8, 6, 2, 4, 7, 2]]
    model = tiny(family)
    expected = []
    for prompt in ends:
        alone = generated(model, prompt, 8)
        expected.append(alone[: alone.index(2) + 1] if 2 in alone else alone)
    assert max(map(len, expected)) == 8
    for overlap in (False, True):
        pump = Pump(gpu, overlap, max_num_batched_tokens=budget, max_num_seqs=3)
        assert [answer.ids for answer in pump.run([Ask(prompt, 8) for prompt in ends])] == expected
