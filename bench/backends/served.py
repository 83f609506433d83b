"""A device in real time, under the serving driver."""

from __future__ import annotations

from backend.api import Device, Sampling
from backend.config import EngineConfig
from backend.load import serve_traffic
from backend.simulation import Progress, Run
from backend.traffic import Traffic
from bench.backends.api import Backend
from bench.backends.config import SamplingConfig
from bench.config import PredictionConfig
from bench.errors import BadInput
from policies.api import Policy
from predictors.guard import Guarded


class Served(Backend):
    real_time = True

    def __init__(self, device: Device, horizon_s: float | None, sampling: Sampling | None = None) -> None:
        self.device = device
        self._horizon_s = horizon_s
        self.sampling = sampling or Sampling()

    def run(
        self,
        traffic: Traffic,
        policy: Policy,
        engine: EngineConfig,
        *,
        predictor: Guarded | None,
        prediction: PredictionConfig,
        seed: int,
        progress: Progress | None = None,
    ) -> Run:
        if prediction.latency_s:
            raise BadInput("prediction.latency_s: in real time a predictor takes the time that it takes; leave it at 0")
        return serve_traffic(
            traffic,
            policy,
            self.device,
            engine,
            predictor=predictor,
            prediction_limit_s=prediction.limit_s,
            sampling=self.sampling,
            seed=seed,
            horizon_s=self._horizon_s,
            progress=progress,
        )


def drawn(config: SamplingConfig) -> Sampling:
    return Sampling(config.temperature, config.top_k, config.top_p, config.seed)
