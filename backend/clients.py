"""The clients of a simulated run: when each request arrives, and when its client leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush

import numpy as np

from backend.config import picoseconds
from backend.engine import Engine
from backend.errors import Refused
from backend.request import Request
from backend.traffic import NONE, Column, Traffic
from policies.api import Time
from predictors.api import Prediction, PredictionInput, Predictor

NEVER: Time = 2**62

SLICE = 1024
"""Rows that are turned into Python objects, and predicted, at once."""


class Clients:
    """Delivers what is due to the engine, in order of time and then of row.

    A predictor is asked for a slice of requests at once, ahead of their arrival; answers are there `latency_s` after.
    """

    def __init__(
        self,
        traffic: Traffic,
        engine: Engine,
        opened: Callable[[int, Request], None],
        predictor: Predictor | None,
        latency_s: float,
    ) -> None:
        self.traffic = traffic
        self.engine = engine
        self.predictor = predictor
        self._oracle = predictor is not None and "oracle" in predictor.needs
        self._latency = picoseconds(latency_s, 10**12)
        self._opened = opened
        leaves = (traffic.cancel_tokens, traffic.cancel_after, traffic.patience)
        self._may_leave = np.any([column != NONE for column in leaves], axis=0)  # rows whose client may leave early
        self._rows = self._requests()
        self._next: Request | None = next(self._rows, None)  # open loop: the next to arrive
        self._events: list[tuple[Time, int, Callable[[Time, Time], object]]] = []
        self._count = 0
        self._coming = 0  # closed loop: requests that will arrive whatever happens
        self._arrival: Time = NEVER  # open loop: of the next request
        self.due: Time = NEVER
        """When the next thing happens."""
        self.ended = 0
        if traffic.concurrency is None:
            if self._next is not None:
                self.due = self._arrival = self._next.arrival
        else:
            for _ in range(traffic.concurrency):
                self._free_client(0)

    @property
    def more_to_come(self) -> bool:
        """Whether a further arrival is possible, even if nobody waiting is admitted."""
        if self.traffic.concurrency is None:
            return self._next is not None
        return self._coming > 0 or (self._next is not None and self.engine.num_running > 0)

    def deliver(self, now: Time) -> None:
        """Everything that was due by `now`."""
        while (due := self.due) <= now:
            if due == self._arrival and self._next is not None:
                request, self._next = self._next, next(self._rows, None)
                self._arrive(request, now)
                self._arrival = NEVER if self._next is None else self._next.arrival
            else:
                _, _, event = heappop(self._events)
                event(due, now)
            self.due = min(self._arrival, self._events[0][0]) if self._events else self._arrival

    def finished(self, request: Request, now: Time) -> None:
        """A request has reached its terminal state; in a closed loop its client sends the next."""
        self.ended += 1
        if self.traffic.concurrency is not None:
            self._free_client(now)

    def outran(self, requests: Sequence[Request], now: Time) -> None:
        """These have made more tokens than predicted."""
        if self.predictor is None:
            return
        inputs = [self._input(request, request.outputs(self.engine.committed)) for request in requests]
        for request, prediction in zip(requests, self.predictor.predict(inputs), strict=True):
            self._answer(request, prediction, now)

    def _arrive(self, request: Request, now: Time) -> None:
        traffic, row = self.traffic, request.row
        prediction = request.prediction
        if self._latency and prediction is not None:
            request.prediction = request.first_prediction = None
        try:
            self.engine.submit(request, now)
        except Refused:
            self.finished(request, now)
            return
        self._opened(row, request)
        if self._latency and prediction is not None:
            self._answer(request, prediction, request.arrival)
        if not self._may_leave[row]:
            return
        if (tokens := int(traffic.cancel_tokens[row])) != NONE:
            self.engine.watch(request, tokens)
        if (after := int(traffic.cancel_after[row])) != NONE:
            self._at(request.arrival + after, lambda due, now: self.engine.cancel(request.id, now, due))
        if (patience := int(traffic.patience[row])) != NONE:
            self._at(request.arrival + patience, lambda due, now: self._give_up(request, now, due))

    def _answer(self, request: Request, prediction: Prediction, asked: Time) -> None:
        if self._latency:
            self._at(asked + self._latency, lambda due, now: self.engine.predict(request, prediction, now))
        else:
            self.engine.predict(request, prediction, asked)

    def _give_up(self, request: Request, now: Time, called: Time) -> None:
        if not 0 <= request.first_token <= called:
            self.engine.cancel(request.id, now, called)

    def _free_client(self, now: Time) -> None:
        request, self._next = self._next, next(self._rows, None)
        if request is not None:
            request.arrival = request.wait_since = max(now, request.arrival)
            self._coming += 1
            self._at(request.arrival, lambda due, now: self._come(request, now))

    def _come(self, request: Request, now: Time) -> None:
        self._coming -= 1
        self._arrive(request, now)

    def _at(self, time: Time, event: Callable[[Time, Time], object]) -> None:
        self._count += 1
        heappush(self._events, (time, self._count, event))
        self.due = min(self.due, time)

    def _requests(self) -> Iterator[Request]:
        for start in range(0, len(self.traffic), SLICE):
            requests = list(self._slice(start, min(start + SLICE, len(self.traffic))))
            if self.predictor is not None:
                answers = self.predictor.predict([self._input(request, 0) for request in requests])
                for request, prediction in zip(requests, answers, strict=True):
                    request.prediction = request.first_prediction = prediction
            yield from requests

    def _slice(self, start: int, stop: int) -> Iterator[Request]:
        t = self.traffic

        def ints(column: Column) -> list[int]:
            values: list[int] = column[start:stop].tolist()
            return values

        columns = (t.tenant, t.prompt_tokens, t.max_tokens, t.arrival, t.user, t.priority, t.deadline)
        for row, values in enumerate(zip(*map(ints, columns), strict=True), start):
            tenant_index, prompt, limit, arrival, user, priority, deadline = values
            tenant = t.tenants[tenant_index]
            yield Request(
                t.id(row),
                tenant.name,
                prompt,
                None if limit == NONE else limit,
                arrival,
                row=row,
                user=str(user),
                weight=tenant.weight,
                priority=priority,
                deadline=None if deadline == NONE else deadline,
            )

    def _input(self, request: Request, output_tokens: int) -> PredictionInput:
        row = request.row
        limit = request.max_tokens
        if limit < 1:  # not submitted yet, and no limit of its own
            limit = max(1, self.engine.max_model_len - request.prompt_tokens)
        return PredictionInput(
            request.id,
            None if self.traffic.prompts is None else self.traffic.prompts[row],
            request.prompt_tokens,
            request.tenant,
            request.arrival,
            limit,
            output_tokens,
            int(self.traffic.output_tokens[row]) if self._oracle else None,
        )
