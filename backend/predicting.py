"""Asking a predictor off the step path, with a time limit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Thread
from typing import Protocol

from backend.request import Request
from predictors.api import Prediction, PredictionInput

POLL_S = 0.005


class GuardedPredictor(Protocol):
    """A predictor whose answers are checked apart from its being asked; `predictors.guard.Guarded` is one."""

    def ask(self, inputs: Sequence[PredictionInput]) -> Sequence[object] | None:
        """In a thread: what the predictor says; None if it raised."""

    def failed(self, why: str) -> None:
        """Count a call that brought nothing."""

    def check(self, inputs: Sequence[PredictionInput], answers: Sequence[object] | None) -> list[Prediction]:
        """One usable prediction an input; `answers` None: fall back."""


@dataclass(slots=True, eq=False)
class Question:
    request: Request
    about: PredictionInput
    timer: asyncio.TimerHandle | None = None
    settled: bool = False


class PredictionDesk:
    """One thread asks at a time, for all who came meanwhile; whoever has waited `limit_s` gets the fallback.

    A late answer is dropped. `answered` and `failed` are called on the event loop's thread; `failed` with what the
    predictor must never raise, such as reading an undeclared truth.
    """

    def __init__(
        self,
        predictor: GuardedPredictor,
        limit_s: float,
        truth: Callable[[Request], int] | None,
        answered: Callable[[Request, Prediction], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._predictor = predictor
        self._limit_s = limit_s
        self._truth = truth
        self._answered = answered
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._new: deque[Question] = deque()
        self._asked: list[Question] = []
        self._thread: Thread | None = None

    def ask(self, request: Request, text: str | None, output_tokens: int) -> None:
        question = Question(
            request,
            PredictionInput(
                request.id,
                text,
                request.prompt_tokens,
                request.tenant,
                request.arrival,
                request.max_tokens,
                output_tokens,
                None if self._truth is None else self._truth(request),
            ),
        )
        question.timer = self._loop.call_later(self._limit_s, self._late, question)
        self._new.append(question)
        if self._thread is None:
            self._next()

    async def close(self) -> None:
        """Drop what is open; wait for a call in progress, but no longer than the limit."""
        for question in (*self._new, *self._asked):
            self._settle(question)
        end = self._loop.time() + self._limit_s
        while self._thread is not None and self._loop.time() < end:
            await asyncio.sleep(POLL_S)

    def _next(self) -> None:
        """Ask for all that is new, in a thread that may be left behind: a predictor can hang."""
        self._asked, self._new = [q for q in self._new if not q.settled], deque()
        self._thread = None
        if self._asked:
            self._thread = Thread(target=self._run, args=([q.about for q in self._asked],), daemon=True)
            self._thread.start()

    def _run(self, inputs: list[PredictionInput]) -> None:
        answers: Sequence[object] | Exception | None
        try:
            answers = self._predictor.ask(inputs)
        except Exception as error:
            answers = error
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._came, answers)

    def _came(self, answers: Sequence[object] | Exception | None) -> None:
        if isinstance(answers, Exception):
            self._failed(answers)
            return
        asked = self._asked
        if answers is not None and len(answers) != len(asked):
            self._predictor.failed(f"{len(answers)} answers to {len(asked)} inputs")
            answers = None
        in_time = [i for i, question in enumerate(asked) if not question.settled]
        if in_time:
            kept = None if answers is None else [answers[i] for i in in_time]
            for i, prediction in zip(
                in_time, self._predictor.check([asked[i].about for i in in_time], kept), strict=True
            ):
                self._settle(asked[i])
                self._answered(asked[i].request, prediction)
        self._next()

    def _late(self, question: Question) -> None:
        if self._settle(question):
            while self._new and self._new[0].settled:
                self._new.popleft()  # behind a call that hangs, they would gather
            self._predictor.failed(f"no answer within {self._limit_s} s")
            [prediction] = self._predictor.check([question.about], None)
            self._answered(question.request, prediction)

    def _settle(self, question: Question) -> bool:
        """False if it was settled before."""
        if question.settled:
            return False
        question.settled = True
        if question.timer is not None:
            question.timer.cancel()
        return True
