"""However the engine ends, or a call before it is in the queue: nobody is left waiting, and nothing is left behind."""

from __future__ import annotations

import asyncio
import threading
from time import sleep

import pytest

from backend.costs import ConstantCost
from backend.errors import DuplicateId, Refused
from backend.realtime import RealTimeDevice
from backend.serving import Closed
from backend.streams import Cancelled, EngineFailed
from policies.api import Decision
from policies.fcfs import FCFS
from predictors.api import Predictor
from predictors.guard import Guarded
from serving_by_hand import Dies, device, prompt, read, server, tokens, within


def test_a_failure_reaches_those_who_wait_outside_a_full_queue():
    async def main():
        async with server(Dies(5), max_num_seqs=1, max_waiting=2) as engine:
            visits = [asyncio.create_task(read(engine, f"r{n}", 50)) for n in range(12)]
            done, pending = await asyncio.wait(visits, timeout=5)
            assert not pending
            assert all("the fan has stopped" in str(visit.exception()) for visit in done)
            assert {type(visit.exception()) for visit in done} == {EngineFailed}

    within(10, main())


class SlowToTokenize(RealTimeDevice):
    def __init__(self):
        super().__init__(ConstantCost(5), num_blocks=1000, max_model_len=4096)
        self.encoded = []

    def encode(self, text):
        sleep(0.1)
        self.encoded.append(text)
        return super().encode(text)


def test_those_whose_text_is_still_being_read_are_told_that_the_engine_has_closed():
    gpu = SlowToTokenize()

    async def main():
        async with server(gpu) as engine:
            visits = [asyncio.create_task(engine.submit(text, 5)) for text in ("one", "two", "three")]
            await asyncio.sleep(0.02)
        results = await asyncio.gather(*visits, return_exceptions=True)
        assert [type(result) for result in results] == [Closed] * 3
        assert not engine.engine.submitted

    within(10, main())
    assert gpu.encoded == ["one"]  # the others need not be read any more


def test_a_request_cancelled_while_its_text_is_read_never_runs_and_its_caller_is_told():
    gpu = SlowToTokenize()

    async def main():
        async with server(gpu) as engine:
            visit = asyncio.create_task(engine.submit("one", 5, request_id="one"))
            await asyncio.sleep(0.02)
            engine.cancel("one")
            with pytest.raises(DuplicateId, match="request one"):
                await engine.submit("another", 5, request_id="one")
            with pytest.raises(Cancelled, match="request one is cancelled"):
                await visit
            assert not engine.engine.submitted
            assert await read(engine, "one", 3) == tokens("one", 3)  # the name is free again

    within(10, main())


def test_a_cancel_ends_the_request_that_runs_and_the_one_of_the_same_name_that_comes():
    async def main():
        async with server(SlowToTokenize()) as engine:
            running = await engine.submit(prompt("one"), 500, request_id="one")
            coming = asyncio.create_task(engine.submit("one", 5, request_id="one"))
            await asyncio.sleep(0.02)
            engine.cancel("one")
            assert running.state == "cancelled"
            with pytest.raises(Cancelled):
                await coming

    within(10, main())


def test_a_request_cancelled_outside_a_full_queue_is_told_at_once_and_keeps_nobody_back():
    async def main():
        async with server(device(5), max_num_seqs=1, max_waiting=1) as engine:
            visits = [asyncio.create_task(read(engine, f"r{n}", 20)) for n in range(4)]
            await asyncio.sleep(0.05)  # one runs, one waits inside, two outside
            engine.cancel("r2")
            done, _ = await asyncio.wait([visits[2]], timeout=0.02)
            assert done
            results = await asyncio.gather(*visits, return_exceptions=True)
        assert isinstance(results[2], Cancelled)
        assert [results[n] for n in (0, 1, 3)] == [tokens(f"r{n}", 20) for n in (0, 1, 3)]

    within(10, main())


def test_a_failure_reaches_those_whose_text_is_still_being_read():
    class Both(SlowToTokenize):
        def _run(self, output):
            raise RuntimeError("no")

    async def main():
        async with server(Both()) as engine:
            text = asyncio.create_task(engine.submit("one", 5))
            await asyncio.sleep(0.01)
            with pytest.raises(EngineFailed):
                await read(engine, "r", 5)
            with pytest.raises(EngineFailed):
                await text

    within(10, main())


def test_draining_with_a_time_limit_may_be_given_up():
    """Whoever is still there then is cancelled by the next close; the device is free again."""
    gpu = device(20)

    async def main():
        async with server(gpu) as engine:
            stream = await engine.submit(prompt("r"), 4000, request_id="r")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(engine.close(drain=True), 0.1)
            assert stream.state == ""
            reading = asyncio.create_task(everything(stream))
        with pytest.raises(Cancelled):
            await reading
        assert engine.engine.pool.free == 1000
        assert not gpu._known
        return engine.records()

    assert list(within(10, main()).requests["state"]) == ["cancelled"]


async def everything(stream):
    return [piece async for piece in stream]


class Holds(FCFS):
    """Admits nobody before it is told."""

    def __init__(self):
        super().__init__()
        self.open = False

    def decide(self, view):
        return Decision(admit=self._in_order()) if self.open else Decision()


def test_the_place_of_one_who_is_turned_away_goes_to_the_next():
    """Nothing runs, so that nothing else calls the next one in."""

    async def main():
        policy = Holds()
        async with server(device(2), policy, max_waiting=1) as engine:
            first = await engine.submit(prompt("first"), 3, request_id="first")
            bad = asyncio.create_task(engine.submit([], 3))
            await asyncio.sleep(0)
            good = asyncio.create_task(engine.submit(prompt("good"), 3, request_id="good"))
            await asyncio.sleep(0)
            policy.open = True
            first.cancel()
            with pytest.raises(Refused):
                await bad
            stream = await asyncio.wait_for(good, 2)
            assert [piece.token for piece in await everything(stream)] == tokens("good", 3)

    within(10, main())


def test_one_who_was_called_in_is_not_refused_because_a_preempted_one_came_back():
    """Under overlap two steps may be planned before whoever was called in runs, and the second may preempt."""

    async def main():
        asked = {f"r{n}": (1 + n % 8, 1 + n % 8) for n in range(300)}  # tokens of its prompt, and to make

        async def answer(engine, name, length, limit):
            return [piece.token async for piece in engine.generate(prompt(name, length), limit, request_id=name)]

        async with server(device(0, blocks=7, block_size=4), max_num_seqs=3, max_waiting=1) as engine:
            got = await asyncio.gather(*(answer(engine, name, *sizes) for name, sizes in asked.items()))
        assert got == [tokens(name, limit) for name, (_, limit) in asked.items()]
        return engine.records()

    assert within(20, main()).requests["preemptions"].sum() > 20


def test_an_engine_whose_state_is_broken_fails_its_streams_nevertheless(caplog):
    async def main():
        async with server(Dies(3)) as engine:

            def breaks(now, failure):
                raise KeyError("nobody knows")

            engine.engine.abandon = breaks
            results = await asyncio.gather(*(read(engine, f"r{n}", 50) for n in range(3)), return_exceptions=True)
        assert [type(error) for error in results] == [EngineFailed] * 3

    within(10, main())
    assert "the engine's state is broken" in caplog.text


class Hangs(Predictor):
    def __init__(self):
        self.go_on = threading.Event()

    def predict(self, inputs):
        self.go_on.wait()
        return []


def test_behind_a_predictor_that_hangs_nothing_gathers():
    predictor = Hangs()

    async def main():
        guarded = Guarded(predictor, 40)
        async with server(device(1), predictor=guarded, prediction_limit_s=0.02) as engine:
            for n in range(10):
                assert await read(engine, f"r{n}", 3) == tokens(f"r{n}", 3)
            await asyncio.sleep(0.1)
            assert len(engine._desk._new) == 0
            predictor.go_on.set()
        assert guarded.counts.errors >= 10

    within(10, main())
