"""The policy contract as a fixed family of small simulated runs; `batchyard check-policy NAME` runs them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from backend.config import ADMISSIONS, BATCHINGS, MILLISECOND, EngineConfig, HostTimes
from backend.costs import ConstantCost
from backend.records import Records
from backend.simulated import SimulatedDevice
from backend.simulation import simulate
from backend.traffic import NONE, Column, Tenant, Traffic
from policies.api import InvalidDecision, OracleNotDeclared, Policy, PolicyStalled
from policies.check import NO_CHANGE, SAME_ANSWER, Probe
from predictors.api import Prediction, PredictionInput, Predictor
from predictors.guard import Guarded
from predictors.noisy_oracle import NoisyOracle

CONSTRUCTOR = "the constructor only stores its parameters"
NO_ERROR = "it raises nothing, whatever the settings"
ENDS = "everybody ends: both loops, all batchings and admissions, cancels, preemption"
NAMES = "it names only requests that it may name"
ORACLE = "the true length is read only if needs declares the oracle"
EQUAL = "a hundred requests with equal keys all finish"
ODD = "predictions that are NaN, infinite or missing break nothing"
SAME_RUN = "the same seed makes the same run"
FORGETS = "reset forgets everything: one object runs twice alike"
RULES = (CONSTRUCTOR, NO_ERROR, ENDS, NAMES, ORACLE, SAME_ANSWER, NO_CHANGE, EQUAL, ODD, SAME_RUN, FORGETS)

HORIZON_S = 300.0
"""Virtual time, many times what the workloads take: who has not ended by then never will."""


@dataclass(frozen=True, slots=True)
class Finding:
    rule: str
    problem: str = ""
    """Empty: the rule is kept."""


class Says(Predictor):
    """The same to everybody, usable or not."""

    def __init__(self, expected: float) -> None:
        self.expected = expected

    def predict(self, inputs: Sequence[PredictionInput]) -> list[Prediction]:
        return [Prediction(self.expected, self.expected, "says") for _ in inputs]


def check_policy(make: Callable[[], Policy], given: Mapping[str, Any]) -> list[Finding]:
    """`make` builds the policy anew, with the parameters `given`; one finding a rule."""
    kit = _Kit(make)
    kit.constructor(given)
    kit.family()
    kit.equal_keys()
    kit.odd_predictions()
    kit.determinism()
    return [Finding(rule, kit.problems.get(rule, "")) for rule in RULES]


class _Kit:
    def __init__(self, make: Callable[[], Policy]) -> None:
        self.make = make
        self.problems: dict[str, str] = {}

    def constructor(self, given: Mapping[str, Any]) -> None:
        policy = self.make()
        for name, parameter in inspect.signature(type(policy)).parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            value = given.get(name, parameter.default)
            if not hasattr(policy, name) or getattr(policy, name) != value:
                found = repr(getattr(policy, name)) if hasattr(policy, name) else "nothing"
                self._broken(CONSTRUCTOR, f"parameter {name} was {value!r}, attribute {name} is {found}")

    def family(self) -> None:
        for (name, work), overlap, batching, admission in product(
            {"three tenants": _three_tenants(), "little memory": _little_memory()}.items(),
            (False, True),
            BATCHINGS,
            ADMISSIONS,
        ):
            where = f"{name}, overlap={str(overlap).lower()}, batching={batching}, admission={admission}"
            settings = {"overlap": overlap, "batching": batching, "admission": admission}
            blocks = 12 if name == "little memory" else 200
            self._watched(ENDS, where, work, NoisyOracle(relative_error=0.5), blocks=blocks, latency_s=0.03, **settings)

    def equal_keys(self) -> None:
        for overlap in (False, True):
            work = traffic(100, prompt=4, output=3)
            self._watched(EQUAL, f"overlap={str(overlap).lower()}", work, Says(3), overlap=overlap)

    def odd_predictions(self) -> None:
        for expected in (math.nan, math.inf, -1.0):
            for overlap in (False, True):
                where = f"expected={expected}, overlap={str(overlap).lower()}"
                self._watched(ODD, where, _three_tenants(), Says(expected), overlap=overlap)
        self._watched(ODD, "none before the end", _three_tenants(), Says(5), latency_s=200.0)

    def determinism(self) -> None:
        for overlap in (False, True):
            where = f"overlap={str(overlap).lower()}"
            same = self.make()
            try:
                first, again = self._run(same, overlap=overlap), self._run(same, overlap=overlap)
                fresh = self._run(self.make(), overlap=overlap, jump=False)
            except Exception as error:
                self._failed(NO_ERROR, where, error)
                continue
            if difference := _difference(first, fresh):
                self._broken(SAME_RUN, f"{where}: {difference}")
            if difference := _difference(first, again):
                self._broken(FORGETS, f"{where}: {difference}")

    def _run(self, policy: Policy, overlap: bool, jump: bool = True) -> Records:
        predictor = Guarded(NoisyOracle(relative_error=0.5), 256)
        return _simulated(_little_memory(), policy, predictor, blocks=12, overlap=overlap, jump=jump)

    def _watched(self, rule: str, where: str, work: Traffic, predictor: Predictor, **settings: Any) -> None:
        """Run it in a probe; who does not end breaks `rule`."""
        probe = Probe.around(self.make())
        try:
            states = _simulated(work, probe, predictor, **settings).requests["state"]
        except Exception as error:
            self._failed(NO_ERROR if rule == ENDS else rule, where, error)
        else:
            if unfinished := int((states == "unfinished").sum()):
                self._broken(rule, f"{where}: {unfinished} of {len(states)} have not ended after {HORIZON_S:g} s")
        for broken, how in probe.problems.items():
            self._broken(broken, f"{where}: {how}")

    def _failed(self, rule: str, where: str, error: Exception) -> None:
        kinds: dict[type[Exception], str] = {InvalidDecision: NAMES, OracleNotDeclared: ORACLE}
        kinds[PolicyStalled] = ENDS if rule == NO_ERROR else rule
        self._broken(kinds.get(type(error), rule), f"{where}: {type(error).__name__}: {error}")

    def _broken(self, rule: str, how: str) -> None:
        self.problems.setdefault(rule, how)


def _simulated(
    work: Traffic,
    policy: Policy,
    predictor: Predictor,
    *,
    blocks: int = 200,
    latency_s: float = 0.0,
    jump: bool = True,
    **engine: Any,
) -> Records:
    return simulate(
        work,
        policy,
        SimulatedDevice(ConstantCost(10), num_blocks=blocks, block_size=4, max_model_len=200),
        EngineConfig(max_num_seqs=4, max_num_batched_tokens=24, batch_timeout_s=0.05, **engine),
        host=HostTimes(3, 2, 0, 0),
        predictor=predictor,
        predictor_latency_s=latency_s,
        horizon_s=HORIZON_S,
        jump=jump,
    ).records


def _difference(a: Records, b: Records) -> str:
    """Where the requests of two runs first differ, or nothing."""
    try:
        pd.testing.assert_frame_equal(a.requests, b.requests)
    except AssertionError as error:
        return " ".join(str(error).split())[:200]
    return ""


def _three_tenants() -> Traffic:
    """40 requests of three tenants and three priorities; clients that leave, lose patience, or have had enough."""
    rng = np.random.default_rng(1)
    n = 40
    return traffic(
        n,
        prompt=rng.integers(1, 60, n),
        output=rng.integers(1, 30, n),
        arrival=np.sort(rng.integers(0, 1500, n)) * MILLISECOND,
        max_tokens=rng.choice([NONE, 8, 30], n),
        tenant=rng.integers(0, 3, n),
        priority=rng.integers(0, 3, n),
        deadline=rng.choice([NONE, 10**12], n),
        cancel_after=np.where(rng.random(n) < 0.2, rng.integers(0, 900, n) * MILLISECOND, NONE),
        patience=np.where(rng.random(n) < 0.2, rng.integers(1, 300, n) * MILLISECOND, NONE),
        cancel_tokens=np.where(rng.random(n) < 0.2, rng.integers(1, 9, n), NONE),
    )


def _little_memory() -> Traffic:
    """24 requests of six clients; a pool of 48 tokens, so that most are preempted."""
    rng = np.random.default_rng(2)
    n = 24
    return traffic(
        n, prompt=rng.integers(1, 16, n), output=rng.integers(8, 30, n), tenant=np.arange(n) % 3, concurrency=6
    )


def traffic(n: int, *, concurrency: int | None = None, **columns: Any) -> Traffic:
    """`n` requests; a column is a number for all or one each."""
    names = ("max_tokens", "deadline", "cancel_after", "cancel_tokens", "patience")
    plain = dict.fromkeys(names, NONE) | dict.fromkeys(("arrival", "tenant", "priority"), 0)

    def column(value: Any) -> Column:
        return np.broadcast_to(np.asarray(value, dtype=np.int64), (n,)).copy()

    given: dict[str, Any] = {name: column(value) for name, value in (plain | columns).items()}
    return Traffic(
        prompt_tokens=given.pop("prompt"),
        output_tokens=given.pop("output"),
        user=np.arange(n, dtype=np.int64) % 5,
        slo=column(0),
        tenants=[Tenant("a"), Tenant("b", 2.0), Tenant("c")],
        concurrency=concurrency,
        **given,
    )
