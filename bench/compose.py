"""The composition root: from a configuration to the objects of one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from backend.costs import ConstantCost, CostModel, LinearCost, PaddedCost, RooflineCost
from backend.hardware import GpuFigures, ModelFigures, gpu_figures, model_figures, pool_blocks
from backend.simulated import SimulatedDevice
from bench.build import build
from bench.config import (
    Config,
    ConstantCostConfig,
    LinearCostConfig,
    PaddedCostConfig,
    RooflineCostConfig,
    SimulatedConfig,
    check_keys,
)
from bench.errors import BadInput, named
from bench.metrics import MetricOptions
from bench.traffic.build import Built, build_traffic
from bench.traffic.config import SyntheticConfig, TraceConfig
from policies.api import Policy
from predictors.api import Predictor
from predictors.guard import Guarded
from predictors.noisy_oracle import NoisyOracle


@dataclass(frozen=True, slots=True)
class Experiment:
    """Everything that a run consists of, built and found to fit together."""

    config: Config
    workload: Built
    policy: Policy
    predictor: Guarded | None
    backend: SimulatedConfig
    device: SimulatedDevice
    metrics: MetricOptions

    @property
    def oracle(self) -> bool:
        """True if the policy or the predictor knows the true lengths."""
        return any("oracle" in plugin.needs for plugin in (self.policy, self.predictor) if plugin is not None)


def typed(settings: DictConfig) -> Config:
    """The configuration as the classes of `bench.config`, interpolations resolved.

    Raises BadInput for an SLO that makes no sense and for a key that was forced in with ``+`` and means nothing.
    """
    check_keys(settings)
    for name, targets in settings.slo.items():
        with named(f"slo.{name}"):
            OmegaConf.to_object(targets)
    config = OmegaConf.to_object(settings)
    assert isinstance(config, Config)
    return config


def compose(config: Config, names: Mapping[str, str], base: Path) -> Experiment:
    """Build a run. `names` are the options chosen, by group; relative paths start at `base`.

    Raises BadInput, naming the key, for whatever cannot be built or does not fit together.
    """
    with named("engine"):
        config.engine.check()
    policy = build(config.policy, "policy", Policy)
    predictor = _predictor(config)
    if "prediction" in policy.needs and predictor is None:
        raise BadInput(f"policy={names['policy']} needs predictions: choose a predictor, say predictor=noisy_oracle")
    backend = _backend(config.backend)
    with named("backend"):
        backend.host.check()
    device = simulated_device(backend)
    longest = config.engine.max_model_len or _longest(device)
    with named("workload"):
        workload = build_traffic(_workload(config.workload), config.seed, longest, base)
    if predictor is not None and isinstance(predictor.predictor, NoisyOracle):
        with named("predictor.kendall_tau"):
            predictor.predictor.calibrate(workload.traffic.output_tokens.tolist())
    metrics = _metrics(config, workload.traffic.slo_classes)
    return Experiment(config, workload, policy, predictor, backend, device, metrics)


def simulated_device(backend: SimulatedConfig) -> SimulatedDevice:
    """The GPU of `backend`; its pool is what fits beside the weights, unless `num_blocks` says otherwise."""
    with named("backend.model"):
        model = model_figures(backend.model)
    with named("backend.gpu"):
        gpu = gpu_figures(backend.gpu)
    with named("backend.cost"):
        cost = cost_model(backend.cost, model, gpu)
    with named("backend"):
        blocks = backend.num_blocks
        if blocks is None:
            blocks = pool_blocks(model, gpu, backend.block_size, backend.gpu_memory_utilization)
        return SimulatedDevice(
            cost,
            num_blocks=blocks,
            block_size=backend.block_size,
            max_model_len=model.max_model_len,
            name=f"{model.name} on {gpu.name}",
        )


def cost_model(config: object, model: ModelFigures, gpu: GpuFigures) -> CostModel:
    match config:
        case ConstantCostConfig():
            return ConstantCost(config.step_ms)
        case LinearCostConfig():
            return LinearCost(config.base_ms, config.per_token_us, config.per_kv_token_ns)
        case PaddedCostConfig():
            return PaddedCost(config.base_ms, config.per_seq_us, config.per_padded_kv_ns)
        case RooflineCostConfig():
            return RooflineCost(
                model,
                gpu,
                compute_efficiency=config.compute_efficiency,
                memory_efficiency=config.memory_efficiency,
                overhead_ms=config.overhead_ms,
            )
    raise BadInput("backend.cost: choose one with backend/cost=constant, linear, padded or roofline")


def _predictor(config: Config) -> Guarded | None:
    if config.predictor.get("_target_") is None:
        return None
    predictor = build(config.predictor, "predictor", Predictor)
    if not 0 <= config.prediction.latency_s < inf:
        raise BadInput(f"prediction.latency_s: {config.prediction.latency_s} is not a finite number >= 0")
    with named("prediction.fallback_tokens"):
        return Guarded(predictor, config.prediction.fallback_tokens)


def _backend(config: Any) -> SimulatedConfig:
    if not isinstance(config, SimulatedConfig):
        raise BadInput("backend: there is backend=simulated")
    return config


def _workload(config: Any) -> SyntheticConfig | TraceConfig:
    if not isinstance(config, SyntheticConfig | TraceConfig):
        raise BadInput(
            "workload: its YAML has to begin with the schema, defaults: [/schema/workload/synthetic@_here_, _self_] "
            "or /schema/workload/trace@_here_"
        )
    return config


def _metrics(config: Config, classes: Sequence[str]) -> MetricOptions:
    """Without a single promise there is no goodput."""
    if not any(bound is not None for targets in config.slo.values() for bound in vars(targets).values()):
        return replace(config.metrics, slos={})
    if unknown := sorted(set(classes) - set(config.slo)):
        raise BadInput(f"slo: the workload has requests of class {unknown[0]!r}, and there is no slo.{unknown[0]}")
    return config.metrics


def _longest(device: SimulatedDevice) -> int:
    able = device.capabilities
    return min(able.max_model_len, able.num_blocks * able.block_size)
