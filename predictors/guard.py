"""What stands between a predictor and the engine: whatever the one does, the other gets usable numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from predictors.api import Prediction, PredictionInput, Predictor, TruthNotDeclared
from predictors.constant import Constant


@dataclass(slots=True)
class GuardCounts:
    """For the run's summary."""

    calls: int = 0
    predictions: int = 0
    clipped: int = 0  # expected was below what was made already, or above max_tokens
    fallbacks: int = 0  # predictions replaced, or made by a predictor that knew nothing of the request
    errors: int = 0  # calls that raised, or did not return one answer an input
    last_error: str | None = None


class Guarded(Predictor):
    """Asks `predictor`, and answers itself where it could not.

    `expected` lies within [1, max_tokens], and above the tokens made so far where max_tokens allows; `upper` within
    [expected, max_tokens]. An answer that is missing, or has a number that is not finite, is replaced by `fallback`
    tokens, doubled until it exceeds what was made, with source "fallback:<name>". The truth is passed on only to a
    predictor that declares the oracle; reading it undeclared is a programming error and raises TruthNotDeclared.
    """

    def __init__(self, predictor: Predictor, fallback: float, name: str | None = None) -> None:
        """`name` of the predictor, by default that of its class, goes into the source of fallbacks."""
        self.predictor = predictor
        self.needs = predictor.needs
        self.name = name or type(predictor).__name__
        self.counts = GuardCounts()
        self.seconds = 0.0
        """Wall clock that the predictor took: not reproducible, and so apart from the counts."""
        self._fallback = Constant(fallback)

    def predict(self, inputs: Sequence[PredictionInput]) -> list[Prediction]:
        return self.check(inputs, self.ask(inputs))

    def ask(self, inputs: Sequence[PredictionInput]) -> Sequence[object] | None:
        """What the predictor says, unchecked; None if it raises. The one place that takes the predictor's time."""
        if "oracle" not in self.needs:
            inputs = [i if i.truth is None else replace(i, truth=None) for i in inputs]
        began = perf_counter()
        try:
            return list(self.predictor.predict(inputs))
        except TruthNotDeclared:
            raise
        except Exception as error:
            self.failed(f"{type(error).__name__}: {error}")
            return None
        finally:
            self.seconds += perf_counter() - began

    def failed(self, why: str) -> None:
        """Count a call that brought no answer to each input, whatever the cause."""
        self.counts.errors += 1
        self.counts.last_error = why

    def check(self, inputs: Sequence[PredictionInput], answers: Sequence[object] | None) -> list[Prediction]:
        """One usable prediction an input, from whatever was answered; None: nothing was."""
        self.counts.calls += 1
        self.counts.predictions += len(inputs)
        if answers is not None and len(answers) != len(inputs):
            self.failed(f"{len(answers)} answers to {len(inputs)} inputs")
            answers = None
        if answers is None:
            answers = [None] * len(inputs)
        return [self._checked(i, answer) for i, answer in zip(inputs, answers, strict=True)]

    def _checked(self, request: PredictionInput, answer: object) -> Prediction:
        if not isinstance(answer, Prediction) or not _finite(answer):
            self.counts.fallbacks += 1
            answer = replace(self._fallback.predict([request])[0], source=f"fallback:{self.name}")
            return _within(request, answer)
        self.counts.fallbacks += str(answer.source).startswith("fallback:")
        checked = _within(request, answer)
        self.counts.clipped += checked.expected != answer.expected
        return checked


def _finite(prediction: Prediction) -> bool:
    try:
        numbers = [prediction.expected, prediction.upper, *(prediction.probabilities or ())]
        if prediction.score is not None:
            numbers.append(prediction.score)
        return all(math.isfinite(number) for number in numbers)
    except (TypeError, OverflowError):
        return False


def _within(request: PredictionInput, prediction: Prediction) -> Prediction:
    least = min(request.output_tokens + 1, request.max_tokens)
    expected = min(max(prediction.expected, least), request.max_tokens)
    upper = min(max(prediction.upper, expected), request.max_tokens)
    if expected == prediction.expected and upper == prediction.upper:
        return prediction
    return replace(prediction, expected=expected, upper=upper)
