"""The tables of a run in real time: the simulator's steps in the simulator's order, by a clock that only goes on."""

from __future__ import annotations

import asyncio
import time
from time import sleep

import pytest

from backend.costs import ConstantCost
from backend.realtime import RealTimeDevice
from policies.api import Decision, Policy
from policies.fcfs import FCFS
from serving_by_hand import MS, device, in_one_of_three, ordered, prompt, read, row, server, tokens, within


async def two_requests(overlap):
    """TIMELINES' A and B: A says EOS after 3 tokens, B has max_tokens = 2."""
    async with server(device(60), overlap=overlap) as engine:
        a = await engine.submit(prompt("A", 4), request_id="A", forced_output_tokens=3)
        b = await engine.submit(prompt("B", 4), 2, request_id="B")
        await asyncio.gather(a.reach(9), b.reach(9))
        assert [piece.token async for piece in a] == tokens("A", 3)
        assert [piece.token async for piece in b] == tokens("B", 2)
    return engine.records()


def test_in_turn_a_step_is_planned_when_the_one_before_is_committed():
    records = within(20, two_requests(overlap=False))
    steps = records.steps
    assert list(steps["steps"]) == [1, 1, 1]
    assert list(steps["decodes"]) == [0, 2, 1]
    assert list(steps["tokens"]) == [2, 2, 1]
    assert steps["wasted"].sum() == 0
    events = [t for s in steps.itertuples() for t in (s.planned, s.started, s.ended, s.committed)]
    assert events == sorted(events)
    assert (steps["exposed"] == steps["host"]).all()


def test_under_overlap_the_host_order_is_that_of_the_simulator():
    in_one_of_three(host_order)


def host_order():
    records = within(20, two_requests(overlap=True))
    steps = list(records.steps.itertuples())
    assert [s.steps for s in steps] == [1, 1, 1, 1]
    assert [s.decodes for s in steps] == [0, 2, 1, 1]
    assert [s.tokens for s in steps] == [2, 2, 1, 0]
    assert [s.wasted for s in steps] == [0, 0, 0, 1]
    one, two, three, four = steps
    plan_and_commit = [one.planned, two.planned, one.committed, three.planned]
    plan_and_commit += [two.committed, four.planned, three.committed, four.committed]
    assert plan_and_commit == sorted(plan_and_commit)
    assert two.planned < one.ended  # and so on: each plan beside the device's work
    assert three.planned < two.ended
    assert four.planned < three.ended
    a, b = row(records.requests, "A"), row(records.requests, "B")
    assert (a.finish_reason, a.output_tokens, b.finish_reason, b.output_tokens) == ("stop", 3, "length", 2)
    assert (a.freed, b.freed) == (four.committed, two.committed)
    assert a.ended == three.committed == records.end


class SlowToDecide(Policy):
    """Asked at every step, for as long as somebody waits."""

    preemptive = True

    def decide(self, view):
        sleep(0.02)
        return Decision(admit=list(view.waiting), revisit_steps=1)


class SlowToForget(FCFS):
    """Its time is part of a commit."""

    def on_finish(self, request, reason, view):
        sleep(0.02)
        super().on_finish(request, reason, view)


async def two_in_turn(overlap):
    """The second waits for 12 steps, and as often the policy is asked."""
    async with server(device(40), SlowToDecide(), overlap=overlap, max_num_seqs=1) as engine:
        await asyncio.gather(read(engine, "a", 12), read(engine, "b", 12))
    return engine


async def short_ones_beside_a_long_one(overlap):
    """12 short ones end while the long one goes on."""
    async with server(device(40), SlowToForget(), overlap=overlap, max_num_seqs=2) as engine:
        await asyncio.gather(read(engine, "long", 24), *(read(engine, f"r{n}", 1 + n % 2) for n in range(12)))
    return engine


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("run", [two_in_turn, short_ones_beside_a_long_one])
def test_host_time_is_measured_and_what_the_device_hid_of_it_is_told_apart(run, overlap):
    def check():
        engine = within(20, run(overlap))
        steps, meter = engine.records().steps, engine.pump.meter
        host, exposed = steps["host"].sum(), steps["exposed"].sum()
        assert 12 * 20 * MS <= host <= meter.plan_time + meter.commit_time
        assert host > 0.9 * (meter.plan_time + meter.commit_time)
        if overlap:
            assert exposed < 0.35 * host  # nothing runs beside the first plans and the last commit
        else:
            assert exposed == host

    in_one_of_three(check)


class SlowToTokenize(RealTimeDevice):
    def encode(self, text):
        sleep(0.2)
        return super().encode(text)


def test_slow_tokenizing_raises_ttft_by_its_time_and_holds_nobody_else_up():
    in_one_of_three(slow_tokenizing)


def slow_tokenizing():
    async def main():
        gpu = SlowToTokenize(ConstantCost(10), num_blocks=100, max_model_len=512)
        async with server(gpu) as engine:
            neighbour = await engine.submit(prompt("n"), 400, request_id="n")
            await neighbour.reach(1)
            before = neighbour.made
            await anext(engine.generate("five.", 1, request_id="text"))
            made = neighbour.made - before
            await read(engine, "ids", 1)
        assert made >= 8  # 20 steps fit, on an idle machine
        return engine.records()

    records = within(20, main())
    text, ids = row(records.requests, "text"), row(records.requests, "ids")
    assert text.prompt_tokens == 5
    slower = (text.first_token - text.arrival) - (ids.first_token - ids.arrival)
    assert 150 < slower / 10**9 < 600
    assert text.submitted - text.arrival >= 2 * 10**11
    assert ordered(records.requests)


def test_the_system_clock_set_back_makes_nothing_negative(monkeypatch):
    async def main():
        async with server(device(10)) as engine:
            reader = asyncio.create_task(read(engine, "r", 20))
            await asyncio.sleep(0.05)
            real = time.time
            monkeypatch.setattr(time, "time", lambda: real() - 3600)
            monkeypatch.setattr(time, "time_ns", lambda: int((real() - 3600) * 1e9))
            await reader
        return engine.records()

    records = within(20, main())
    assert ordered(records.requests)
    r = row(records.requests, "r")
    assert 0 < r.first_token - r.arrival < r.ended - r.arrival < 10**13
    steps = records.steps
    assert (steps[["planned", "started", "busy", "host", "exposed", "gap_time", "kv_time"]] >= 0).all().all()
    assert (steps["started"] <= steps["ended"]).all()
    assert (steps["ended"] <= steps["committed"]).all()


def test_who_came_is_beside_each_request():
    async def main():
        async with server(device(2), FCFS()) as engine:
            await read(engine, "r", 3, tenant="acme", user=7, priority=-2, deadline_s=5.0)
            await read(engine, "s", 3)
        return engine.records()

    records = within(20, main())
    r, s = row(records.requests, "r"), row(records.requests, "s")
    assert (r.tenant, r.user, r.priority, r.deadline - r.arrival) == ("acme", 7, -2, 5 * 10**12)
    assert (s.tenant, s.user, s.priority, s.deadline) == ("default", 0, 0, -1)
    assert records.tenants == ("acme", "default")
    assert records.weights == (1.0, 1.0)
    assert records.device_kind == "simulated"


def test_a_hold_is_on_the_record():
    class Holds(Policy):
        """Nobody before 100 ms after arrival."""

        def decide(self, view):
            first = next(view.waiting)
            due = first.arrival + 10**11
            return Decision(hold_until=due) if view.now < due else Decision(admit=[first])

    async def main():
        async with server(device(2), Holds()) as engine:
            assert await read(engine, "r", 3) == tokens("r", 3)
        return engine.records()

    records = within(20, main())
    r = row(records.requests, "r")
    assert r.scheduled - r.arrival >= 10**11
    [hold] = records.holds.itertuples()
    assert r.submitted <= hold.since
    assert 8 * 10**10 < hold.until - hold.since < 10**12
