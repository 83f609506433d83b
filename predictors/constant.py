"""The same answer for everybody."""

from __future__ import annotations

import math
from collections.abc import Sequence

from predictors.api import Prediction, PredictionInput, Predictor


class Constant(Predictor):
    """`tokens` for each request; doubled, for one that outran that, until it is more than was made.

    `upper` is the request's `max_tokens`: nothing smaller is known to hold.
    """

    def __init__(self, tokens: float = 256) -> None:
        if not 1 <= tokens < math.inf:
            raise ValueError(f"constant.tokens: {tokens} is not a finite number >= 1")
        self.tokens = tokens

    def predict(self, inputs: Sequence[PredictionInput]) -> list[Prediction]:
        return [Prediction(self._beyond(i.output_tokens), i.max_tokens, "constant") for i in inputs]

    def _beyond(self, made: int) -> float:
        expected = float(self.tokens)
        while expected <= made:
            expected *= 2
        return expected
