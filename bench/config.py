"""The shape of a configuration: every key with its type, so that a wrong one is refused by name.

YAML files in ``conf/`` hold the options; the classes here, and those of the parts that they configure, hold the types
and the defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from backend.config import EngineConfig
from bench.backends.config import (
    ConstantCostConfig,
    InstalledConfig,
    LinearCostConfig,
    PaddedCostConfig,
    RealTimeConfig,
    RooflineCostConfig,
    SimulatedConfig,
    TorchConfig,
)
from bench.errors import BadInput
from bench.learning.config import TrainConfig
from bench.metrics import MetricOptions
from bench.slo import SloTargets
from bench.tracking.api import TrackingSettings
from bench.traffic.config import InstructionsConfig, SyntheticConfig, TraceConfig


@dataclass
class PredictionConfig:
    """How predictions reach the engine, whoever makes them."""

    latency_s: float = 0.0
    """From a request's arrival to its prediction; in the simulator configured, never measured."""
    limit_s: float = 0.25
    """In real time: an answer that takes longer is not waited for."""
    fallback_tokens: float = 256.0
    """Taken where a predictor has no usable answer."""


@dataclass
class Config:
    policy: dict[str, Any] = MISSING
    predictor: dict[str, Any] = MISSING
    prediction: PredictionConfig = field(default_factory=PredictionConfig)
    workload: Any = MISSING
    backend: Any = MISSING
    engine: EngineConfig = field(default_factory=EngineConfig)
    slo: dict[str, SloTargets] = MISSING
    """By class of requests."""
    metrics: MetricOptions = field(default_factory=MetricOptions)
    tracking: TrackingSettings = field(default_factory=TrackingSettings)
    seed: int = 0
    objective: str | None = None
    """A figure of summary.json that a sweeper like Optuna optimises."""


SCHEMAS: tuple[tuple[str | None, str, type], ...] = (
    (None, "schema", Config),
    (None, "train_schema", TrainConfig),
    ("schema/workload", "synthetic", SyntheticConfig),
    ("schema/workload", "instructions", InstructionsConfig),
    ("schema/workload", "trace", TraceConfig),
    ("schema/backend", "simulated", SimulatedConfig),
    ("schema/backend", "realtime", RealTimeConfig),
    ("schema/backend", "torch", TorchConfig),
    ("schema/backend", "installed", InstalledConfig),
    ("schema/backend/cost", "constant", ConstantCostConfig),
    ("schema/backend/cost", "linear", LinearCostConfig),
    ("schema/backend/cost", "padded", PaddedCostConfig),
    ("schema/backend/cost", "roofline", RooflineCostConfig),
)


def register() -> None:
    """Make the schemas known to Hydra; to be called before it composes anything."""
    for group, name, node in SCHEMAS:
        ConfigStore.instance().store(group=group, name=name, node=node, provider="batchyard")


def check_keys(node: DictConfig, path: str = "") -> None:
    """Raise BadInput for a key that its class does not have: Hydra's ``+`` puts it in all the same."""
    kind = OmegaConf.get_type(node)
    known = [f.name for f in fields(kind)] if kind is not None and is_dataclass(kind) else None
    for key in map(str, node):
        if known is not None and key not in known:
            raise BadInput(f"{path}{key}: there is no such key; there are {', '.join(known)}")
        if not OmegaConf.is_interpolation(node, key) and isinstance(node[key], DictConfig):
            check_keys(node[key], f"{path}{key}.")
