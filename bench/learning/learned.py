"""``predictor=learned``: a trained predictor, from where the configuration says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backend.traffic import Traffic
from bench.errors import BadInput
from bench.tracking.store import USUAL
from predictors.api import Prediction, PredictionInput, Predictor

if TYPE_CHECKING:
    from bench.learning.loading import Origin
    from predictors.learned import LearnedPredictor


class Learned(Predictor):
    """A predictor that `batchyard train` made, or that the project's own corpus teaches on the spot."""

    def __init__(
        self,
        model: str = "corpus",
        store: str = USUAL,
        objective: str | None = None,
        features: Sequence[str] | None = None,
        embedder: str | None = None,
        quantile: float | None = None,
        calibration: int | None = None,
        bins: int | None = None,
        topics: int | None = None,
        rounds: int | None = None,
        seed: int | None = None,
    ) -> None:
        """`model`: corpus, a folder, or ``models:/NAME@ALIAS`` or ``models:/NAME/VERSION`` in the MLflow `store`.

        The rest says how it learns (predictors.learned.LearnedConfig). A model that is loaded has learnt: there a key
        is either null or what it was trained with. Raises BadInput, naming the key, if there is no such model.
        """
        from bench.learning.loading import load_model  # scikit-learn and skops take seconds

        settings = {
            "objective": objective, "features": features, "embedder": embedder, "quantile": quantile,
            "calibration": calibration, "bins": bins, "topics": topics, "rounds": rounds, "seed": seed,
        }  # fmt: skip
        self.predictor: LearnedPredictor
        self.origin: Origin
        self.predictor, self.origin = load_model(model, store, settings)

    def predict(self, inputs: Sequence[PredictionInput]) -> list[Prediction]:
        return self.predictor.predict(inputs)

    def check(self, traffic: Traffic, workload: str) -> None:
        """Raises BadInput if it learnt from what this traffic does not have."""
        if self.predictor.model.reads and traffic.prompts is None:
            raise BadInput(
                f"predictor.model: {self.origin.name} reads prompts, and workload={workload} has no texts: choose "
                "workload=corpus or instructions, or train without: predictor.features=[prompt_tokens,tenant,time]"
            )
