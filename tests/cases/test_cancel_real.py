"""Clients who leave a real model: they end once, their blocks come back, their neighbours say what they say alone."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from time import sleep

import numpy as np
import pytest

from backend.api import Sampling
from backend.request import Phase
from backend.torch_device.device import TorchDevice
from bench.metrics import MetricOptions, summarise
from serving_by_hand import in_one_of_three, ordered, row, server, within
from torch_models import generated, prompts, tiny
from torch_pump import Ask, Pump

FREE = Sampling(ignore_eos=True)
BLOCKS = 64
PROMPTS = prompts(4, 9, 20, 6, 15, 11, seed=2)
both_loops = pytest.mark.parametrize("overlap", [False, True], ids=["sync", "overlap"])


class Unhurried(TorchDevice):
    """50 ms more for each step, so that what happens between two of them is certain."""

    def wait(self, ticket):
        sleep(0.05)
        return super().wait(ticket)


@pytest.fixture(scope="module")
def gpu():
    device = Unhurried(tiny("llama"), num_blocks=BLOCKS, block_size=8, threads=1)
    yield device
    device.shutdown()


@pytest.fixture(scope="module")
def solo():
    model = tiny("llama")
    return [generated(model, prompt, 12) for prompt in PROMPTS]


async def close_it(engine, got):
    async with aclosing(engine.generate(PROMPTS[0], 200, sampling=FREE, request_id="r")) as pieces:
        async for piece in pieces:
            got.append(piece.token)
            if len(got) == 3:
                break


async def consume(engine, got, three):
    async for piece in engine.generate(PROMPTS[0], 200, sampling=FREE, request_id="r"):
        got.append(piece.token)
        if len(got) == 3:
            three()


async def cancel_the_task(engine, got):
    reached = asyncio.Event()
    task = asyncio.create_task(consume(engine, got, reached.set))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def time_out(engine, got):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as limit:
            await consume(engine, got, lambda: limit.reschedule(asyncio.get_running_loop().time()))


@both_loops
@pytest.mark.parametrize("leave", [close_it, cancel_the_task, time_out])
def test_leaving_a_stream_of_200_after_3(gpu, solo, leave, overlap):
    def check():
        async def main():
            async with server(gpu, overlap=overlap) as engine:
                got = []
                neighbour = asyncio.create_task(all_ids(engine, 1))
                await leave(engine, got)
                assert got == solo[0][:3]
                assert await neighbour == solo[1]
                while engine.engine.live:
                    await asyncio.sleep(0.005)
                assert engine.engine.pool.free == BLOCKS
            return engine.records()

        records = within(20, main())
        r = row(records.requests, "r")
        assert (r.state, r.output_tokens) == ("cancelled", 3)
        assert r.made_tokens <= 3 + 2
        assert r.cancel_called <= r.ended <= r.freed
        summary = summarise(records, MetricOptions())
        assert (summary["cancelled"], summary["completed"]) == (1, 1)
        assert 0 <= summary["cancellation_lag_mean_ms"] < 1000
        assert 0 <= summary["blocks_freed_lag_mean_ms"] < 1000
        assert not gpu._requests

    in_one_of_three(check)


async def all_ids(engine, i, count=12):
    return [piece.token async for piece in engine.generate(PROMPTS[i], count, sampling=FREE, request_id=f"r{i}")]


@both_loops
@pytest.mark.parametrize("by", ["length", "stop"])
def test_in_the_step_that_makes_the_last_token(gpu, solo, by, overlap):
    """Before its commit the request is cancelled with four tokens, after it completed with five; once each."""
    ends = {"max_tokens": 5} if by == "length" else {"forced_output_tokens": 5}

    async def main():
        async with server(gpu, overlap=overlap) as engine:
            neighbour = asyncio.create_task(all_ids(engine, 1))
            for made, state in ((4, "cancelled"), (5, "completed")):
                stream = await engine.submit(PROMPTS[0], sampling=FREE, request_id=state, **ends)
                await stream.reach(made)
                if made == 4:
                    request = engine.engine.live[state]
                    assert engine.engine.in_flight_tokens(request) >= 1
                for _ in range(2):
                    stream.cancel()
                    engine.cancel(state)
                assert (stream.state, stream.made) == (state, made)
            engine.cancel("nobody")
            assert await neighbour == solo[1]
        return engine.records()

    records = within(20, main())
    assert sorted(records.requests["state"]) == ["cancelled", "completed", "completed"]
    assert row(records.requests, "cancelled").output_tokens == 4
    assert row(records.requests, "cancelled").made_tokens >= 5
    assert row(records.requests, "completed").finish_reason == by
    assert not gpu._requests


@both_loops
def test_six_requests_for_two_slots_and_the_fifth_leaves_while_it_waits(gpu, solo, overlap):
    async def main():
        async with server(gpu, overlap=overlap, max_num_seqs=2) as engine:
            visits = [asyncio.create_task(all_ids(engine, i, 4)) for i in range(6)]
            while not engine.engine.committed:
                await asyncio.sleep(0.001)
            assert engine.engine.live["r4"].phase == Phase.WAITING
            visits[4].cancel()
            results = await asyncio.gather(*visits, return_exceptions=True)
            assert isinstance(results.pop(4), asyncio.CancelledError)
            assert results == [ids[:4] for i, ids in enumerate(solo) if i != 4]
        return engine.records()

    records = within(20, main())
    fifth = row(records.requests, "r4")
    assert (fifth.state, fifth.scheduled, fifth.first_token, fifth.made_tokens) == ("cancelled", -1, -1, 0)
    summary = summarise(records, MetricOptions())
    assert (summary["n_ttft"], summary["completed"], summary["cancelled"]) == (5, 5, 1)


@both_loops
def test_between_chunks_two_and_three_of_four(gpu, overlap):
    [prompt] = prompts(64, seed=6)
    alone = generated(tiny("llama"), prompt, 4)

    async def main():
        async with server(gpu, overlap=overlap, max_num_batched_tokens=16, max_num_seqs=4) as engine:
            stream = await engine.submit(prompt, 4, sampling=FREE, request_id="r")
            request = engine.engine.live["r"]
            while request.planned < 32:
                await asyncio.sleep(0)
            assert (request.planned, request.phase) == (32, Phase.PREFILL)
            stream.cancel()
            while engine.engine.live:
                await asyncio.sleep(0.001)
            assert engine.engine.pool.free == BLOCKS
            again = await engine.submit(prompt, 4, sampling=FREE, request_id="r")
            assert [piece.token async for piece in again] == alone
        return engine.records()

    left, stayed = within(20, main()).requests.itertuples()
    assert (left.state, left.output_tokens, left.first_token) == ("cancelled", 0, -1)
    assert stayed.state == "completed"


@both_loops
def test_all_leave(gpu, overlap):
    async def main():
        async with server(gpu, overlap=overlap, max_num_seqs=2) as engine:
            streams = [await engine.submit(prompt, 100, sampling=FREE) for prompt in PROMPTS]
            await streams[0].reach(2)
            for stream in streams:
                stream.cancel()
            dispatched = engine.engine.dispatched
            while engine.engine.live:
                await asyncio.sleep(0.001)
            assert engine.engine.pool.free == BLOCKS
            await asyncio.sleep(0.05)
            assert engine.engine.dispatched == dispatched
        return engine.records()

    records = within(20, main())
    assert list(records.requests["state"]) == ["cancelled"] * 6
    assert list(records.requests["scheduled"] >= 0) == [True] * 2 + [False] * 4
    summary = summarise(records, MetricOptions())
    assert (summary["cancelled"], summary["completed"], summary["output_throughput"]) == (6, 0, 0)
    last = records.steps.iloc[-1]
    assert (last["kv_tokens"], last["kv_blocks"]) == (0, 0)
    assert ordered(records.requests)


@both_loops
@pytest.mark.parametrize("seed", range(2))
def test_two_thousand_random_operations_on_eight_blocks(seed, overlap):
    """Blocks of 4. Whoever ends has said what it says alone, and whoever left the beginning of it."""
    rng = np.random.default_rng(seed)
    kinds = prompts(*range(1, 13), seed=3)
    model = tiny("llama")
    alone = [generated(model, prompt, 12) for prompt in kinds]
    operations = {"submit": 0, "step": 0, "cancel": 0, "preempt": 0}

    def disturb(engine):
        tables = list(engine.members.owned_tables())
        owned = [block for table in tables for block in table]
        assert len(set(owned)) == len(owned)
        assert engine.pool.free + len(owned) == 8
        running = [r for r in engine.members if r.phase != Phase.ENDING]
        planned = [chunk.member for chunk in engine.chunks]
        live = [r for r in engine.live.values() if r.phase != Phase.DONE and r not in planned]
        if len(running) > 1 and rng.random() < 0.4:
            engine.preempt(running[rng.integers(len(running))])
            operations["preempt"] += 1
        elif live and engine.shortage_round != engine.round and rng.random() < 0.05:
            engine.cancel(live[rng.integers(len(live))].id, engine.now)
            operations["cancel"] += 1

    which = rng.integers(len(kinds), size=340).tolist()
    limits = rng.integers(1, 13, size=340).tolist()
    asks = [Ask(kinds[w], n, FREE, arrives=3 * i) for i, (w, n) in enumerate(zip(which, limits, strict=True))]
    small = TorchDevice(model, num_blocks=8, block_size=4, threads=1)
    pump = Pump(small, overlap, max_num_seqs=4, max_num_batched_tokens=10, planning=disturb)
    answers = pump.run(asks)
    assert not small._requests
    small.shutdown()
    operations |= {"submit": len(asks), "step": pump.steps}
    assert operations["cancel"] > 20
    assert operations["preempt"] > 60
    assert sum(operations.values()) + len(answers) > 2000
    for answer, kind, limit in zip(answers, which, limits, strict=True):
        assert answer.ids == alone[kind][: len(answer.ids)]
        assert answer.state in ("completed", "cancelled")
        assert len(answer.ids) == limit or answer.state == "cancelled"
