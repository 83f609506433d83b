"""A predictor is asked beside the steps; whatever it does, the run goes on."""

from __future__ import annotations

import asyncio
from time import sleep

import pytest

from backend.config import EngineConfig
from backend.errors import BadConfig
from backend.load import serve_traffic
from backend.streams import EngineFailed
from policies.fcfs import FCFS
from policies.oracle_length import OracleLength
from predictors.api import Prediction, Predictor, TruthNotDeclared
from predictors.guard import Guarded
from predictors.oracle import Oracle
from serving_by_hand import device, read, server, tokens, within
from traffic_by_hand import traffic


class Hears(FCFS):
    """Keeps what it is told of predictions: (id, expected, source, tokens made)."""

    needs = frozenset({"prediction"})

    def __init__(self):
        super().__init__()
        self.heard = []

    def on_prediction(self, request, view):
        said = request.prediction
        self.heard.append((request.id, said.expected, said.source, request.output_tokens))
        super().on_prediction(request, view)


class Says(Predictor):
    def __init__(self, expected, pause_s=0.0):
        self.expected = expected
        self.pause_s = pause_s
        self.batches = []

    def predict(self, inputs):
        self.batches.append([(i.id, i.text, i.output_tokens) for i in inputs])
        sleep(self.pause_s)
        if isinstance(self.expected, Exception):
            raise self.expected
        return [Prediction(self.expected, self.expected, "says") for _ in inputs]


def test_a_prediction_reaches_policy_and_record():
    async def main():
        policy, predictor = Hears(), Says(12.4)
        async with server(device(20), policy, predictor=Guarded(predictor, 40)) as engine:
            await anext(engine.generate("what is a token?", 5, request_id="r"))
            await read(engine, "s", 30)
        assert predictor.batches[0] == [("r", "what is a token?", 0)]
        assert predictor.batches[1] == [("s", None, 0)]
        assert policy.heard[:2] == [("r", 5, "says", 0), ("s", 12.4, "says", 0)]
        return engine.records()

    assert list(within(10, main()).requests["predicted_tokens"]) == [5, 12]


def test_one_who_outruns_the_prediction_is_predicted_again():
    async def main():
        policy, predictor = Hears(), Says(4)
        guard = Guarded(predictor, 40)
        async with server(device(20), policy, predictor=guard) as engine:
            assert await read(engine, "r", 12) == tokens("r", 12)
        assert guard.counts.fallbacks == 0
        again = [made for [(_, _, made)] in predictor.batches]
        assert again[:2] == [0, 5]
        assert len(again) >= 3
        assert all(expected > made for _, expected, _, made in policy.heard[1:2])

    within(10, main())


def test_a_predictor_that_sleeps_is_given_up_after_the_limit_and_counted():
    async def main():
        policy, predictor = Hears(), Says(5, pause_s=1)
        guard = Guarded(predictor, 7)
        async with server(device(5), policy, predictor=guard, prediction_limit_s=0.05) as engine:
            results = await asyncio.gather(*(read(engine, f"r{n}", 10) for n in range(4)))
            took = engine.clock() / 1e12
        assert results == [tokens(f"r{n}", 10) for n in range(4)]
        assert took < 0.9
        firsts = {name: (expected, source) for name, expected, source, _ in reversed(policy.heard)}
        assert firsts == {f"r{n}": (7, "fallback:Says") for n in range(4)}
        assert guard.counts.fallbacks == len(policy.heard) >= 4
        assert guard.counts.last_error == "no answer within 0.05 s"

    within(10, main())


def test_a_late_answer_is_dropped():
    async def main():
        policy = Hears()
        guard = Guarded(Says(5, pause_s=0.2), 40)
        async with server(device(20), policy, predictor=guard, prediction_limit_s=0.05) as engine:
            await read(engine, "r", 30)  # 0.6 s
        assert [(expected, source) for _, expected, source, _ in policy.heard] == [(30, "fallback:Says")]

    within(10, main())


@pytest.mark.parametrize("said", [float("nan"), float("inf"), -40, 0, 1e9, "no", RuntimeError("no model")])
def test_whatever_it_says_the_policy_hears_a_usable_number(said):
    async def main():
        policy = Hears()
        async with server(device(20), policy, predictor=Guarded(Says(said), 40)) as engine:
            assert await read(engine, "r", 6) == tokens("r", 6)
        assert all(1 <= expected <= 6 for _, expected, _, _ in policy.heard)
        assert policy.heard

    within(10, main())


def test_a_predictor_asks_for_all_who_came_meanwhile_at_once():
    async def main():
        predictor = Says(5, pause_s=0.1)
        async with server(device(5), Hears(), predictor=Guarded(predictor, 40), prediction_limit_s=5) as engine:
            await asyncio.gather(*(read(engine, f"r{n}", 60) for n in range(20)))
        assert len(predictor.batches[0]) == 1
        assert len(predictor.batches[1]) == 19

    within(10, main())


def test_a_predictor_that_peeks_undeclared_fails_the_run():
    class Peeks(Predictor):
        def predict(self, inputs):
            return [Prediction(i.true_output_tokens, 1, "peeks") for i in inputs]

    async def main():
        async with server(device(20), predictor=Guarded(Peeks(), 40)) as engine:
            with pytest.raises(EngineFailed, match="TruthNotDeclared") as failed:
                await read(engine, "r", 50)
        assert isinstance(failed.value.__cause__, TruthNotDeclared)

    within(10, main())


def test_the_truth_is_there_for_those_who_declare_it():
    work = traffic(output=[30, 2, 9], max_tokens=50)
    policy = OracleLength()
    config = EngineConfig(max_num_seqs=1)
    records = serve_traffic(work, policy, device(5), config, predictor=Guarded(Oracle(), 40)).records
    ended = records.requests.sort_values("ended")
    assert list(ended["output_tokens"]) == [2, 9, 30]
    assert list(records.requests.sort_values("row")["predicted_tokens"]) == [30, 2, 9]


def test_what_a_policy_needs_and_nobody_gives_is_refused_before_anything_runs():
    with pytest.raises(BadConfig, match="Hears needs predictions"):
        server(device(), Hears())
    with pytest.raises(BadConfig, match="OracleLength needs the true lengths"):
        server(device(), OracleLength())
