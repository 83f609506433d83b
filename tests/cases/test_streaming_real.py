"""Whole text, readers apart from one another, a long step that stalls nobody, a dead model that leaves none waiting."""

from __future__ import annotations

import asyncio
from itertools import count
from time import monotonic

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from backend.api import DeviceFailed, Sampling
from backend.costs import ConstantCost
from backend.realtime import RealTimeDevice
from backend.streams import EngineFailed
from backend.torch_device.detokenise import Detokeniser
from backend.torch_device.device import TorchDevice
from serving_by_hand import in_one_of_three, server, within
from torch_models import generated, prompts, tiny

FREE = Sampling(ignore_eos=True)
TEXT = "🙂🙂 日本語 é a\ufffdb"


@pytest.fixture(scope="module")
def bytewise():
    """One token a byte: every character above 127 takes several."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=inner)


class Speaks(RealTimeDevice):
    """Says TEXT to everybody, each from its beginning, in the tokens of a tokenizer."""

    def __init__(self, tokenizer):
        super().__init__(ConstantCost(1), num_blocks=100, max_model_len=512)
        self.tokenizer, self.ids, self._said = tokenizer, tokenizer.encode(TEXT), {}

    def decoder(self, sampling):
        return Detokeniser(self.tokenizer)

    def _tokens(self, batch):
        made = super()._tokens(batch)
        return {name: self.ids[next(self._said.setdefault(name, count()))] for name in made}


def test_interleaved_streams_join_to_the_text_and_halve_no_character(bytewise):
    gpu = Speaks(bytewise)
    whole, cut = len(gpu.ids), len("🙂🙂 日本".encode()) - 1

    async def answer(engine, limit):
        return [piece async for piece in engine.generate([1], limit)]

    async def main():
        async with server(gpu, max_num_seqs=2) as engine:
            return await asyncio.gather(*(answer(engine, limit) for limit in (whole, cut, whole, whole)))

    first, tail, *others = within(20, main())
    for pieces in (first, *others):
        assert "".join(piece.text for piece in pieces) == TEXT
        assert {piece.text for piece in pieces} == {"", *TEXT.replace("\ufffdb", ""), "\ufffdb"}
        assert [piece.text for piece in pieces[:4]] == ["", "", "", "🙂"]
    assert "".join(piece.text for piece in tail) == "🙂🙂 日\ufffd"
    assert tail[-1].text == "\ufffd"


def test_thirty_two_streams_of_a_model_and_one_slow_reader():
    model = tiny("llama")
    asked = prompts(*range(1, 33), seed=7)
    expected = [generated(model, prompt, 10) for prompt in asked]
    gpu = TorchDevice(model, num_blocks=200, block_size=8, threads=1)
    late = {}

    async def reader(engine, i, pause, got):
        stream = await engine.submit(asked[i], 10, sampling=FREE, request_id=str(i))
        async for piece in stream:
            got.append(piece.token)
            await asyncio.sleep(pause)
        late[i] = (engine.clock() - stream.ended_at) / 1e12
        return got

    async def main():
        async with server(gpu, max_num_seqs=32) as engine:
            read = []
            slow = asyncio.create_task(reader(engine, 0, 0.2, read))
            got = await asyncio.gather(*(reader(engine, i, 0, []) for i in range(1, 32)))
            assert len(read) < 7  # of ten: nobody waited for it to read on
            assert [await slow, *got] == expected
        assert max(late[i] for i in range(1, 32)) < 1

    in_one_of_three(lambda: within(30, main()))
    gpu.shutdown()


@pytest.mark.parametrize("way", [{}, {"fused": False}], ids=["fused", "modules"])
def test_a_long_step_of_a_model_does_not_stall_the_event_loop(way):
    """A whole prompt in one step; it is lengthened until that takes 300 ms."""
    small = {"max_position_embeddings": 65536, "hidden_size": 128, "num_hidden_layers": 4, "initializer_range": 0.02}
    gpu = TorchDevice(tiny("llama", **small), num_blocks=1200, block_size=16, threads=1, **way)

    async def stall(engine, length):
        """The longest time that another coroutine had to wait, and what the step took."""
        stream = await engine.submit([5] * length, 1, sampling=FREE)
        began = last = monotonic()
        longest = 0.0
        while not stream.state:
            await asyncio.sleep(0.005)
            longest, last = max(longest, monotonic() - last), monotonic()
        return longest, last - began

    async def main():
        length, took = 512, 0.0
        async with server(gpu, max_num_batched_tokens=16384, max_num_seqs=1) as engine:
            while took < 0.3 and length < 16384:
                length *= 2
                _, took = await stall(engine, length)
            return min([await stall(engine, length) for _ in range(3)]), took

    def check():
        (longest, _), took = within(60, main())
        assert took > 0.1
        assert longest < 0.05

    in_one_of_three(check)
    gpu.shutdown()


class Breaks(TorchDevice):
    """From batch number 6 on."""

    def wait(self, ticket):
        if ticket >= 6:
            raise RuntimeError("the memory is on fire")
        return super().wait(ticket)


@pytest.mark.parametrize("overlap", [False, True], ids=["sync", "overlap"])
def test_a_model_that_dies_fails_all_who_stream_wait_or_come(overlap):
    """Four run, eight wait, twenty are outside the door."""
    gpu = Breaks(tiny("llama"), num_blocks=60, block_size=8, threads=1)

    async def answer(engine, prompt):
        return [piece.token async for piece in engine.generate(prompt, 50, sampling=FREE)]

    async def main():
        async with server(gpu, overlap=overlap, max_num_seqs=4, max_waiting=8) as engine:
            visits = [asyncio.create_task(answer(engine, prompt)) for prompt in prompts(*[5] * 32)]
            done, pending = await asyncio.wait(visits, timeout=10)
            assert not pending
            for visit in done:
                error = visit.exception()
                assert isinstance(error, EngineFailed)
                assert isinstance(error.__cause__, DeviceFailed)
                assert "the memory is on fire" in str(error)
            with pytest.raises(EngineFailed):
                await answer(engine, [5])
        return engine.records()

    assert set(within(20, main()).requests["state"]) == {"failed"}
    gpu.shutdown()
