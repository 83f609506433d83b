"""What a real model's server refuses, with the numbers, and what it runs to the last token."""

from __future__ import annotations

import asyncio

import pytest

from backend.api import Sampling
from backend.errors import DuplicateId, Refused
from backend.torch_device.device import TorchDevice
from serving_by_hand import server, within
from torch_models import generated, prompts, tiny

FREE = Sampling(ignore_eos=True)
both_loops = pytest.mark.parametrize("overlap", [False, True], ids=["sync", "overlap"])


@pytest.fixture(scope="module")
def long():
    """Could hold 4096 tokens, and its pool holds 128."""
    model = tiny("llama", max_position_embeddings=4096)
    device = TorchDevice(model, num_blocks=8, threads=1)
    yield model, device
    device.shutdown()


@pytest.fixture(scope="module")
def short():
    """Holds 256 tokens, of its pool's 512."""
    model = tiny("llama")
    device = TorchDevice(model, num_blocks=32, threads=1)
    yield model, device
    device.shutdown()


async def answer(engine, prompt, limit, **settings):
    pieces = [piece async for piece in engine.generate(prompt, limit, sampling=FREE, **settings)]
    return [piece.token for piece in pieces], pieces[-1].finish_reason


@both_loops
@pytest.mark.parametrize("admission", ["optimistic", "reserve", "peak"])
def test_eight_blocks_and_a_model_length_beyond_them(long, admission, overlap):
    model, gpu = long
    whole, behind = prompts(129, 5)

    async def main():
        async with server(gpu, overlap=overlap, max_model_len=4096, admission=admission) as engine:
            with pytest.raises(Refused, match=r"needs 9 KV blocks, 8 are available"):
                await engine.submit(whole, 1)
            for limit in (24, None):
                with pytest.raises(Refused, match=r"needs \d+ KV blocks, 8 are available"):
                    await engine.submit(whole[:120], limit)
            return await asyncio.gather(
                answer(engine, whole[:128], 1), answer(engine, behind, 3), answer(engine, whole[:120], 9)
            )

    asked = [(whole[:128], 1), (behind, 3), (whole[:120], 9)]
    assert within(20, main()) == [(generated(model, prompt, limit), "length") for prompt, limit in asked]


@both_loops
@pytest.mark.parametrize(
    ("prompt", "limit", "made"),
    [(151, 200, 105), (255, 200, 1), (255, None, 1), (4, None, 252), (4, 10**12, 252), (254, 2, 2)],
)
def test_max_tokens_is_clipped_to_a_model_length_of_256(short, prompt, limit, made, overlap):
    model, gpu = short
    [ids] = prompts(prompt)

    async def main():
        async with server(gpu, overlap=overlap) as engine:
            return await answer(engine, ids, limit)

    assert within(20, main()) == (generated(model, ids, made), "length")


REFUSED = [
    ([5] * 256, 1, Refused, "256 tokens leaves no room for output in max_model_len = 256"),
    ([5] * 257, None, Refused, "257 tokens leaves no room for output in max_model_len = 256"),
    ([5], 0, Refused, "max_tokens = 0 is not >= 1"),
    ([5], -1, Refused, "max_tokens = -1 is not >= 1"),
    ([5], 1e12, ValueError, "request r: .*max_tokens"),
    ([5], 10**30, ValueError, "request r: .*max_tokens"),
    ([5], "9", ValueError, "request r: .*max_tokens"),
    ([], 5, Refused, "prompt of 0 tokens: at least 1 is needed"),
    ("", 5, ValueError, "has no tokenizer"),
    ([307], 5, Refused, "outside 0..306"),
    ([5.0], 5, TypeError, "integer"),
    ([None], 5, TypeError, "integer"),
    (None, 5, TypeError, "NoneType"),
]


def test_a_bad_call_fails_alone(short):
    """Whatever it is, its neighbour goes on, its id is free again, and the records can be read."""
    model, gpu = short
    [good] = prompts(9)

    async def main():
        async with server(gpu) as engine:
            neighbour = asyncio.create_task(answer(engine, good, 150, request_id="n"))
            await asyncio.sleep(0)
            with pytest.raises(DuplicateId, match="request n"):
                await engine.submit([1], 5, request_id="n")
            for prompt, limit, error, message in REFUSED:
                with pytest.raises(error, match=message):
                    await engine.submit(prompt, limit, request_id="r")
            for bad in ({"priority": 1.5}, {"user": "x"}, {"sampling": Sampling(temperature="hot")}):
                with pytest.raises((Refused, ValueError)):
                    await engine.submit([5], 5, request_id="r", **bad)
            assert await neighbour == (generated(model, good, 150), "length")
            assert (await answer(engine, good, 3, request_id="r"))[0] == generated(model, good, 3)
            assert not engine._visits
        return engine.records()

    records = within(20, main())
    assert list(records.requests["state"]).count("completed") == 2
    assert not gpu._requests
