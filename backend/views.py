"""What policies see: read-only faces of the engine's own objects, never copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from backend.request import Phase, Request
from policies.api import EngineView, OracleNotDeclared, RequestView, Served, Time
from predictors.api import Prediction

if TYPE_CHECKING:
    from backend.engine import Engine

Truth = Callable[[Request], int]
"""The true output length of a request; handed to the engine's views only where the policy declares the oracle."""


class RequestFace(RequestView):
    __slots__ = ("_engine", "_request")

    def __init__(self, request: Request, engine: Engine) -> None:
        self._request = request
        self._engine = engine

    def __repr__(self) -> str:
        return f"<request {self.id}>"

    @property
    def id(self) -> str:
        return self._request.id

    @property
    def number(self) -> int:
        return self._request.number

    @property
    def tenant(self) -> str:
        return self._request.tenant

    @property
    def user(self) -> str:
        return self._request.user

    @property
    def weight(self) -> float:
        return self._request.weight

    @property
    def priority(self) -> int:
        return self._request.priority

    @property
    def deadline(self) -> Time | None:
        return self._request.deadline

    @property
    def arrival(self) -> Time:
        return self._request.arrival

    @property
    def prompt_tokens(self) -> int:
        return self._request.prompt_tokens

    @property
    def max_tokens(self) -> int:
        return self._request.max_tokens

    @property
    def computed_tokens(self) -> int:
        return self._request.written(self._engine.committed)

    @property
    def output_tokens(self) -> int:
        return self._request.outputs(self._engine.committed)

    @property
    def in_flight_tokens(self) -> int:
        return self._engine.in_flight_tokens(self._request)

    @property
    def waited(self) -> Time:
        request = self._request
        since = self._engine.now - request.wait_since if request.phase == Phase.WAITING else 0
        return request.waited + max(0, since)

    @property
    def preemptions(self) -> int:
        return self._request.preemptions

    @property
    def blocks(self) -> int:
        return len(self._request.table)

    @property
    def running(self) -> bool:
        return self._request.phase in (Phase.PREFILL, Phase.DECODE, Phase.ENDING)

    @property
    def prediction(self) -> Prediction | None:
        return self._request.prediction

    @property
    def true_output_tokens(self) -> int:
        truth = self._engine.truth
        if truth is None:
            raise OracleNotDeclared(
                f"{self._engine.policy_name} read the true length of request {self.id}; a policy that does declares "
                'needs = frozenset({"oracle"})'
            )
        return truth(self._request)


class EngineFace(EngineView):
    __slots__ = ("_engine",)

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def now(self) -> Time:
        return self._engine.now

    @property
    def step(self) -> int:
        return self._engine.dispatched + 1

    @property
    def waiting(self) -> Iterator[RequestView]:
        return map(face, list(self._engine.waiting))  # a copy: to admit them all is a decision

    @property
    def running(self) -> Iterator[RequestView]:
        return map(face, list(self._engine.running()))  # a copy: to preempt them all is a decision

    @property
    def num_waiting(self) -> int:
        return self._engine.waiting.size

    @property
    def num_running(self) -> int:
        return self._engine.num_running

    @property
    def free_blocks(self) -> int:
        return self._engine.pool.free

    @property
    def num_blocks(self) -> int:
        return self._engine.pool.num_blocks

    @property
    def free_slots(self) -> int:
        return self._engine.free_slots

    @property
    def token_budget(self) -> int:
        return self._engine.budget

    @property
    def more_to_come(self) -> bool:
        return self._engine.more_to_come

    def waiting_of(self, tenant: str) -> int:
        known = self._engine.tenants.get(tenant)
        return 0 if known is None else known.waiting

    def running_of(self, tenant: str) -> int:
        known = self._engine.tenants.get(tenant)
        return 0 if known is None else known.running

    def served(self, tenant: str) -> Served:
        known = self._engine.tenants.get(tenant)
        return Served(0, 0) if known is None else known.served(self._engine.committed)


def face(request: Request) -> RequestView:
    view = request.view
    assert view is not None, "a request is given its face at submission"
    return view
