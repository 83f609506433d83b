"""A policy inside a probe that watches how it keeps the contract; `batchyard check-policy` runs policies in it."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Sequence
from itertools import islice
from types import BuiltinFunctionType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

import numpy as np

from policies.api import Decision, EngineView, Limits, Policy, RequestView

SAME_ANSWER = "decide, asked twice, answers the same"
NO_CHANGE = "decide changes nothing in the policy"

OPAQUE = (BuiltinFunctionType, FunctionType, GeneratorType, MethodType, ModuleType)
"""Told apart by identity alone."""


class Probe(Policy):
    """Does what `policy` does, and asks it more than once. `problems`: a broken rule -> how it was broken first."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.needs = policy.needs
        self.preemptive = policy.preemptive
        self.problems: dict[str, str] = {}

    @classmethod
    def around(cls, policy: Policy) -> Probe:
        """A probe by the policy's own name, since messages give the name of the class."""
        probe: Probe = type(type(policy).__name__, (cls,), {})(policy)
        return probe

    def decide(self, view: EngineView) -> Decision:
        before = state_of(self.policy)
        first = _spelled(self.policy.decide(view), view)
        after = state_of(self.policy)
        second = _spelled(self.policy.decide(view), view)
        if changed := sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)):
            self._broken(NO_CHANGE, f"step {view.step}: it changed {', '.join(changed)}")
        if different := [name for name in first if first[name] != second[name]]:
            name = different[0]
            self._broken(SAME_ANSWER, f"step {view.step}: {name} was {first[name]}, then {second[name]}")
        return self.policy.decide(view)

    def reset(self, limits: Limits, rng: np.random.Generator) -> None:
        self.policy.reset(limits, rng)

    def on_arrival(self, request: RequestView, view: EngineView) -> None:
        self.policy.on_arrival(request, view)

    def on_prediction(self, request: RequestView, view: EngineView) -> None:
        self.policy.on_prediction(request, view)

    def on_admit(self, request: RequestView, view: EngineView) -> None:
        self.policy.on_admit(request, view)

    def on_preempt(self, request: RequestView, view: EngineView) -> None:
        self.policy.on_preempt(request, view)

    def on_finish(self, request: RequestView, reason: str, view: EngineView) -> None:
        self.policy.on_finish(request, reason, view)

    def reservation(self, request: RequestView) -> int | None:
        return self.policy.reservation(request)

    def victim(self, candidates: Sequence[RequestView], wanted: RequestView) -> RequestView | None:
        return self.policy.victim(candidates, wanted)

    def _broken(self, rule: str, how: str) -> None:
        self.problems.setdefault(rule, how)


def state_of(policy: Policy) -> dict[str, bytes]:
    """Each attribute as bytes that differ if anything in it does; requests and the engine count as themselves."""
    return {name: _frozen(value) for name, value in vars(policy).items()}


class _Freezer(pickle.Pickler):
    def persistent_id(self, thing: Any) -> Any:
        if isinstance(thing, RequestView):
            return "request", thing.number
        if isinstance(thing, EngineView):
            return "engine"
        return ("opaque", id(thing)) if isinstance(thing, OPAQUE) else None


def _frozen(value: object) -> bytes:
    buffer = io.BytesIO()
    try:
        _Freezer(buffer).dump(value)
    except (TypeError, AttributeError, pickle.PicklingError):
        return repr(value).encode()  # an iterator, a lock: only whether it is another one
    return buffer.getvalue()


def _spelled(decision: Decision, view: EngineView) -> dict[str, object]:
    """What it says, with names in place of views."""
    if not isinstance(decision, Decision):
        raise TypeError(f"decide gives a {type(decision).__name__}, which is no policies.api.Decision")
    most = view.num_waiting + view.num_running + 1

    def names(views: Iterable[RequestView]) -> list[str]:
        return [getattr(request, "id", repr(request)) for request in islice(views, most)]

    return {
        "admit": names(decision.admit),
        "preempt": names(decision.preempt),
        "reject": [(getattr(request, "id", repr(request)), why) for request, why in islice(decision.reject, most)],
        "skip_blocked": decision.skip_blocked,
        "hold_until": decision.hold_until,
        "revisit_steps": decision.revisit_steps,
        "revisit_at": decision.revisit_at,
    }
