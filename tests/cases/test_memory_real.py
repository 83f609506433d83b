"""Thousands of short requests on a real model, with random cancels: memory keeps its limit, and nothing is left."""

from __future__ import annotations

import asyncio
import gc

import numpy as np
import psutil
import pytest

from backend.api import Sampling
from backend.request import Request
from backend.streams import Stream
from backend.torch_device.device import TorchDevice
from backend.torch_device.tokens import Tokens
from serving_by_hand import server, within
from torch_models import generated, prompts, tiny

FREE = Sampling(ignore_eos=True)
BLOCKS, REQUESTS = 40, 3000


@pytest.mark.parametrize("overlap", [False, True], ids=["sync", "overlap"])
def test_many_streams_and_random_cancels_leave_nothing_over(overlap):
    rng = np.random.default_rng(3)
    kinds = prompts(*range(1, 17), seed=9)
    model = tiny("llama")
    solo = [generated(model, prompt, 8) for prompt in kinds]
    gpu = TorchDevice(model, num_blocks=BLOCKS, block_size=4, threads=1)
    which, lengths = rng.integers(16, size=REQUESTS).tolist(), rng.integers(1, 9, REQUESTS).tolist()
    leaves = rng.random(REQUESTS).tolist()

    async def visit(engine, i):
        stream = await engine.submit(kinds[which[i]], lengths[i], sampling=FREE, request_id=str(i))
        if leaves[i] < 0.3:
            await stream.reach(int(leaves[i] * 10))
            stream.cancel()
        got = solo[which[i]][: lengths[i]]
        if stream.state == "cancelled":
            return
        assert [piece.token async for piece in stream] == got

    async def main():
        memory = []
        settings = {"overlap": overlap, "max_num_seqs": 32, "max_num_batched_tokens": 64, "max_waiting": 16}
        async with server(gpu, **settings) as engine:
            assert engine.engine.pool.num_blocks == BLOCKS
            for start in range(0, REQUESTS, 500):
                await asyncio.gather(*(visit(engine, i) for i in range(start, start + 500)))
                memory.append(psutil.Process().memory_info().rss)
            await engine.close(drain=True)
            assert engine.engine.pool.free == BLOCKS
            assert not engine.engine.live
            assert not engine._visits
        return memory, engine.records()

    before = objects()
    memory, records = within(120, main())
    assert len(records.requests) == REQUESTS
    assert set(records.requests["state"]) == {"completed", "cancelled"}
    assert 0.15 < (records.requests["state"] == "cancelled").mean() < 0.3
    assert BLOCKS - 8 < records.steps["kv_blocks"].max() <= BLOCKS
    assert (records.steps["kv_tokens"] <= 4 * records.steps["kv_blocks"]).all()
    assert memory[-1] - memory[1] < 16 * 2**20
    assert not gpu._requests
    assert not gpu._open
    assert objects() == before
    gpu.shutdown()


def objects():
    gc.collect()
    return sum(type(thing) in (Request, Stream, Tokens) for thing in gc.get_objects())
