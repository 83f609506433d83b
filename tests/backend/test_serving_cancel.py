"""Whoever leaves, by whatever way, ends once, and its blocks come back."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from time import sleep

import pytest

from backend.streams import Cancelled
from serving_by_hand import device, prompt, read, row, server, tokens, within


async def close_it(engine, got):
    async with aclosing(engine.generate(prompt("r", 40), 200, request_id="r")) as pieces:
        async for piece in pieces:
            got.append(piece.token)
            if len(got) == 3:
                break


async def drop_it(engine, got):
    async for piece in engine.generate(prompt("r", 40), 200, request_id="r"):
        got.append(piece.token)
        if len(got) == 3:
            break  # nobody closes it: it is closed when it is collected


async def cancel_the_task(engine, got):
    three = asyncio.Event()

    async def consume():
        async for piece in engine.generate(prompt("r", 40), 200, request_id="r"):
            got.append(piece.token)
            if len(got) == 3:
                three.set()

    task = asyncio.create_task(consume())
    await three.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def time_out(engine, got):
    async def consume():
        async with asyncio.timeout(None) as limit:
            async for piece in engine.generate(prompt("r", 40), 200, request_id="r"):
                got.append(piece.token)
                if len(got) == 3:
                    limit.reschedule(asyncio.get_running_loop().time())

    with pytest.raises(TimeoutError):
        await consume()


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("leave", [close_it, drop_it, cancel_the_task, time_out])
def test_leaving_after_three_tokens_of_two_hundred(leave, overlap):
    async def main():
        async with server(device(50, blocks=50), overlap=overlap) as engine:
            got = []
            await leave(engine, got)
            while engine.engine.live:
                await asyncio.sleep(0.005)
            assert got == tokens("r", 3)
            assert engine.engine.pool.free == 50
        return engine.records()

    records = within(20, main())
    assert list(records.requests["state"]) == ["cancelled"]
    r = row(records.requests, "r")
    assert r.output_tokens == 3
    assert 3 <= r.made_tokens <= 3 + 2
    assert 0 <= max(0, r.last_made - r.cancel_called) < 10**12
    assert 0 <= r.freed - r.cancel_called < 10**12
    assert r.cancel_called <= r.ended <= r.freed


def test_one_who_leaves_at_a_token_is_not_given_the_next_although_the_device_has_it():
    """Somebody holds the event loop for as long as two steps, so that two batches are back when it goes on."""

    async def hold():
        while True:
            sleep(0.02)
            await asyncio.sleep(0)

    async def main():
        async with server(device(5)) as engine:
            holding = asyncio.create_task(hold())
            streams = [await engine.submit(prompt(name), 100, request_id=name) for name in "abcd"]
            for wanted, stream in zip((5, 8, 11, 14), streams, strict=True):
                await stream.reach(wanted)
                stream.cancel()
            holding.cancel()
        return engine.records()

    assert list(within(20, main()).requests["output_tokens"]) == [5, 8, 11, 14]


def test_cancelling_twice_after_the_end_or_an_unknown_id_changes_nothing():
    async def main():
        async with server(device(10)) as engine:
            neighbour = asyncio.create_task(read(engine, "n", 30))
            stream = await engine.submit(prompt("r"), 20, request_id="r")
            await stream.reach(2)
            for _ in range(2):
                stream.cancel()
                engine.cancel("r")
                engine.cancel("nobody")
            done = await engine.submit(prompt("done"), 2, request_id="done")
            await done.reach(9)
            done.cancel()
            engine.cancel("done")
            assert (stream.state, done.state) == ("cancelled", "completed")
            assert [piece.token async for piece in done] == tokens("done", 2)
            assert await neighbour == tokens("n", 30)
        return engine.records()

    records = within(20, main())
    assert {r.id: r.state for r in records.requests.itertuples()} == {
        "n": "completed",
        "r": "cancelled",
        "done": "completed",
    }
    assert len(records.requests) == 3


def test_a_cancel_of_one_stream_does_not_touch_another_of_the_same_name():
    async def main():
        async with server(device(5)) as engine:
            old = await engine.submit(prompt("r"), 2, request_id="r")
            await old.reach(9)
            new = await engine.submit(prompt("r"), 10, request_id="r")
            old.cancel()
            assert [piece.token async for piece in new] == tokens("r", 10)

    within(20, main())


def test_a_reader_is_told_that_somebody_else_cancelled():
    async def main():
        async with server(device(10)) as engine:
            stream = await engine.submit(prompt("r"), 200, request_id="r")
            await stream.reach(3)
            engine.cancel("r")
            got = [(await anext(stream)).token for _ in range(stream.made)]
            with pytest.raises(Cancelled, match="request r is cancelled"):
                await anext(stream)
        assert got == tokens("r", len(got))
        assert len(got) >= 3

    within(20, main())


def test_one_who_waits_may_leave_and_is_never_scheduled():
    async def main():
        async with server(device(20), max_num_seqs=2) as engine:
            visits = [asyncio.create_task(read(engine, f"r{n}", 8)) for n in range(6)]
            await asyncio.sleep(0.05)
            visits[4].cancel()
            results = await asyncio.gather(*visits, return_exceptions=True)
            assert [r for r in results if isinstance(r, list)] == [tokens(f"r{n}", 8) for n in (0, 1, 2, 3, 5)]
        return engine.records()

    fifth = row(within(20, main()).requests, "r4")
    assert (fifth.state, fifth.scheduled, fifth.first_token, fifth.made_tokens) == ("cancelled", -1, -1, 0)


def test_all_leave_between_chunks_of_their_prompts():
    async def main():
        async with server(device(30, blocks=64), max_num_batched_tokens=32, max_num_seqs=4) as engine:
            streams = [await engine.submit(prompt(f"r{n}", 128), 5, request_id=f"r{n}") for n in range(6)]
            await asyncio.sleep(0.07)  # the first is in its second or third chunk of four
            assert engine.engine.pool.allocated > 0
            for stream in streams:
                stream.cancel()
            while engine.engine.live:
                await asyncio.sleep(0.005)
            assert engine.engine.pool.free == 64
            dispatched = engine.engine.dispatched
            await asyncio.sleep(0.1)
            assert engine.engine.dispatched == dispatched
        return engine.records()

    records = within(20, main())
    assert list(records.requests["state"]) == ["cancelled"] * 6
    assert records.steps["tokens"].sum() == 0
    assert records.steps["kv_tokens"].iloc[-1] == records.steps["kv_blocks"].iloc[-1] == 0
