"""The predictor contract: how long will the answer be?

A predictor is asked at arrival, in batches and off the step path, and again when a request outran its prediction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field


class TruthNotDeclared(Exception):
    """A predictor read the true length without declaring ``needs={"oracle"}``."""


@dataclass(slots=True)
class PredictionInput:
    """What is known of a request when its length is predicted."""

    id: str
    text: str | None
    prompt_tokens: int
    tenant: str
    arrival: int  # picoseconds since the run began
    max_tokens: int
    output_tokens: int = 0  # > 0 when the request outran its prediction
    truth: int | None = field(default=None, repr=False)  # set only for predictors that declare the oracle

    @property
    def true_output_tokens(self) -> int:
        if self.truth is None:
            raise TruthNotDeclared(
                f"request {self.id}: the true output length is not known here; a predictor that reads it declares "
                'needs = frozenset({"oracle"})'
            )
        return self.truth


@dataclass(frozen=True, slots=True)
class Prediction:
    """Of the total output tokens of a request, those already made included."""

    expected: float
    upper: float  # a high quantile, for reservations
    source: str  # who answered; "fallback:<name>" where the predictor could not
    score: float | None = None  # a rank: smaller is shorter
    probabilities: tuple[float, ...] | None = None  # over length bins


class Predictor(ABC):
    needs: frozenset[str] = frozenset()
    """Of {"oracle"}."""

    @abstractmethod
    def predict(self, inputs: Sequence[PredictionInput]) -> list[Prediction]:
        """One prediction an input, in order."""
