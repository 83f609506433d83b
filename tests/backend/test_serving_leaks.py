"""10,000 short requests with random cancels leave nothing over; benchmarks/serving_memory.py tells it by the tenth."""

from __future__ import annotations

import asyncio
import gc

import numpy as np
import psutil
import pytest

from backend.request import Request
from backend.streams import Stream
from serving_by_hand import device, prompt, server, tokens, within


@pytest.mark.parametrize(("overlap", "requests"), [(False, 2000), (True, 10_000)])
def test_after_many_streams_with_random_cancels_no_block_task_thread_or_stream_is_left(overlap, requests):
    rng = np.random.default_rng(3)
    lengths, leaves = rng.integers(1, 12, requests).tolist(), rng.random(requests)
    gpu = device(0, blocks=120, block_size=4)

    async def visit(engine, number):
        """A third leave at some point: before the first token, between two, or by a cancel from outside."""
        stream = await engine.submit(prompt(str(number), 5), lengths[number], request_id=str(number))
        if leaves[number] < 0.1:
            stream.cancel()
        elif leaves[number] < 0.2:
            await stream.reach(int(lengths[number] * leaves[number] * 5))
            engine.cancel(stream.id)
        elif leaves[number] < 0.3:
            pieces = engine.generate(prompt(f"{number}b"), 20, request_id=f"{number}b")
            await anext(pieces)
            await pieces.aclose()
        await stream.reach(1000)
        assert stream.state in ("completed", "cancelled")
        if stream.state == "completed":
            assert [piece.token async for piece in stream] == tokens(stream.id, lengths[number])

    async def main():
        memory = []
        async with server(gpu, overlap=overlap, max_num_seqs=32, max_waiting=16, audit=False) as engine:
            for start in range(0, requests, 1000):
                await asyncio.gather(*(visit(engine, n) for n in range(start, start + 1000)))
                memory.append(psutil.Process().memory_info().rss)
            await engine.close(drain=True)
            assert engine.engine.pool.free == 120
            assert not engine.engine.live
            assert not engine._visits
        return memory, len(engine.records().requests)

    before = objects()
    memory, recorded = within(120, main())
    assert recorded > requests
    assert memory[-1] - memory[1] < 16 * 2**20
    assert not gpu._known
    assert objects() == before


def objects():
    gc.collect()
    return sum(type(thing) in (Request, Stream) for thing in gc.get_objects())
