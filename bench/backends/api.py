"""The one thing that a run asks of a backend, whatever executes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import pandas as pd

from backend.api import Device
from backend.config import EngineConfig
from backend.simulation import Progress, Run
from backend.traffic import Column, Traffic
from bench.config import PredictionConfig
from policies.api import Policy
from predictors.guard import Guarded


class Backend(ABC):
    """A device, and the driver that runs traffic on it."""

    device: Device
    real_time: ClassVar[bool]
    """False: the driver tells the time, and results are reproducible."""

    @abstractmethod
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
    ) -> Run: ...

    def alone(self, engine: EngineConfig, requests: pd.DataFrame) -> Column | None:
        """(requests,) E2EL of each completed request alone on an idle engine, in picoseconds, NONE of the others.

        None where nobody can say.
        """
        return None

    def rehearse(self, traffic: Traffic, engine: EngineConfig, progress: Progress | None) -> Traffic:
        """The same traffic, with the lengths of its answers if they can be found out and somebody has asked for it."""
        return traffic

    @property
    def decides(self) -> bool:
        """True: a model says when an answer ends, so that traffic need not know it."""
        return self.device.capabilities.kind != "simulated"
