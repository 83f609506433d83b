"""A stand-in for the engine: it admits what a policy names, calls the hooks as the engine does, computes nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from policies.api import EngineView, Limits, Policy, RequestView, Served
from predictors.api import Prediction


class Request(RequestView):
    id = tenant = user = ""
    number = priority = arrival = computed_tokens = output_tokens = in_flight_tokens = waited = preemptions = blocks = 0
    prompt_tokens = true_output_tokens = 1
    max_tokens = 1000
    weight = 1.0
    deadline = prediction = None
    running = False

    def __init__(self, **given: Any) -> None:
        vars(self).update(given)

    def __repr__(self) -> str:
        return self.id


class Engine(EngineView):
    now = 0
    step = 1
    more_to_come = True
    num_blocks = free_blocks = token_budget = 10**9
    free_slots = 0

    def __init__(self, policy: Policy, slots: int = 1000, batching: str = "continuous") -> None:
        self.policy = policy
        self.free_slots = slots
        self.queue: dict[int, Request] = {}
        self.active: dict[int, Request] = {}
        self.tally: dict[str, Served] = {}
        self.count = 0
        limits = Limits(batching, False, "optimistic", slots, 8192, 16, 1000, 4096)
        policy.reset(limits, np.random.default_rng(0))

    waiting = property(lambda self: iter(self.queue.values()))
    running = property(lambda self: iter(self.active.values()))
    num_waiting = property(lambda self: len(self.queue))
    num_running = property(lambda self: len(self.active))

    def waiting_of(self, tenant: str) -> int:
        return sum(r.tenant == tenant for r in self.queue.values())

    def running_of(self, tenant: str) -> int:
        return sum(r.tenant == tenant for r in self.active.values())

    def served(self, tenant: str) -> Served:
        return self.tally.get(tenant, Served(0, 0))

    def arrive(self, name: str = "", predicted: float | None = None, **given: Any) -> Request:
        self.count += 1
        request = Request(id=name or str(self.count), number=self.count, **{"arrival": self.now, **given})
        self.queue[request.number] = request
        self.policy.on_arrival(request, self)
        if predicted is not None:
            self.predict(request, predicted)
        return request

    def predict(self, request: Request, expected: float) -> None:
        request.prediction = Prediction(expected, math.inf, "test")
        self.policy.on_prediction(request, self)

    def offered(self) -> str:
        """Ids in the order in which the policy would admit them, all asked for at once."""
        return " ".join(r.id for r in self.policy.decide(self).admit)

    def admit(self, most: int = 10**9) -> str:
        """Let the policy fill up to `most` of the free slots in one decision; ids in order."""
        admitted = []
        for request in self.policy.decide(self).admit:
            if len(admitted) == most or not self.free_slots:
                break
            del self.queue[request.number]
            self.active[request.number] = request
            request.running = True
            self.free_slots -= 1
            admitted.append(request.id)
            self.policy.on_admit(request, self)
        return " ".join(admitted)

    def preempt(self, request: Request) -> None:
        self._stop(request)
        request.computed_tokens = 0
        request.preemptions += 1
        self.queue[request.number] = request
        self.policy.on_preempt(request, self)

    def end(self, request: Request, reason: str = "completed") -> None:
        if request.number in self.queue:
            del self.queue[request.number]
        else:
            self._stop(request)
        self.policy.on_finish(request, reason, self)

    def _stop(self, request: Request) -> None:
        del self.active[request.number]
        request.running = False
        self.free_slots += 1


@pytest.fixture(scope="session")
def engine() -> type[Engine]:
    return Engine
