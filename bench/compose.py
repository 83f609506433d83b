"""The composition root: from a configuration to the objects of one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import DictConfig, OmegaConf

from backend.api import Device
from backend.simulation import Progress
from backend.traffic import NONE, Traffic
from bench.backends.api import Backend
from bench.backends.build import build_backend
from bench.build import build
from bench.config import Config, check_keys
from bench.errors import BadInput, named
from bench.learning.learned import Learned
from bench.metrics import MetricOptions
from bench.traffic.build import Built, build_traffic, check_workload
from bench.traffic.config import InstructionsConfig, SyntheticConfig, TraceConfig, WorkloadConfig
from policies.api import Policy
from predictors.api import Predictor
from predictors.guard import Guarded
from predictors.noisy_oracle import NoisyOracle

if TYPE_CHECKING:
    from bench.learning.loading import Origin


@dataclass(frozen=True, slots=True)
class Experiment:
    """Everything that a run consists of, built and found to fit together."""

    config: Config
    workload: Built
    policy: Policy
    predictor: Guarded | None
    backend: Backend
    metrics: MetricOptions

    @property
    def model(self) -> Origin | None:
        """Of a learned predictor."""
        predictor = None if self.predictor is None else self.predictor.predictor
        return predictor.origin if isinstance(predictor, Learned) else None

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


@contextmanager
def composed(
    config: Config, names: Mapping[str, str], base: Path, progress: Progress | None = None
) -> Iterator[Experiment]:
    """Build a run, and release its device afterwards. `names` are the options chosen, by group.

    Relative paths start at `base`. Raises BadInput, naming the key, for whatever cannot be built or does not fit
    together.
    """
    with named("engine"):
        config.engine.check()
    policy = build(config.policy, "policy", Policy)
    predictor = _predictor(config)
    if "prediction" in policy.needs and predictor is None:
        raise BadInput(f"policy={names['policy']} needs predictions: choose a predictor, say predictor=noisy_oracle")
    workload = _workload(config.workload)
    with named("workload"):
        check_workload(workload)
    backend = build_backend(config.backend, base)
    try:
        built = _built(config, workload, backend, base, progress)
        _check_lengths(built.traffic, backend, policy, predictor, names)
        if predictor is not None and isinstance(predictor.predictor, Learned):
            predictor.predictor.check(built.traffic, names["workload"])
        if predictor is not None and isinstance(predictor.predictor, NoisyOracle):
            with named("predictor.kendall_tau"):
                predictor.predictor.calibrate(built.traffic.output_tokens.tolist())
        metrics = _metrics(config, built.traffic.slo_classes)
        yield Experiment(config, built, policy, predictor, backend, metrics)
    finally:
        backend.device.shutdown()


def _built(config: Config, workload: WorkloadConfig, backend: Backend, base: Path, progress: Progress | None) -> Built:
    longest = config.engine.max_model_len or _longest(backend.device)
    with named("workload"):
        built = build_traffic(workload, config.seed, longest, base)
    traffic = backend.rehearse(_counted(built.traffic, backend), config.engine, progress)
    return replace(built, traffic=traffic)


def _counted(traffic: Traffic, backend: Backend) -> Traffic:
    """In real time a prompt that is a text has as many tokens as the device makes of it, whatever a file says."""
    if traffic.prompts is None or not backend.real_time:
        return traffic
    with named("backend.model"):
        counts = [len(backend.device.encode(prompt)) for prompt in traffic.prompts]
    return replace(traffic, prompt_tokens=np.asarray(counts, np.int64))


def _check_lengths(
    traffic: Traffic, backend: Backend, policy: Policy, predictor: Guarded | None, names: Mapping[str, str]
) -> None:
    if (traffic.output_tokens != NONE).all():
        return
    if not backend.decides:
        raise BadInput(
            f"workload={names['workload']}: how long its answers are is for a model to decide, and "
            f"backend={names['backend']} has none: choose backend=torch, or a workload that has output lengths"
        )
    for group, plugin in (("policy", policy), ("predictor", predictor)):
        if plugin is not None and "oracle" in plugin.needs:
            raise BadInput(
                f"{group}={names[group]} needs the true lengths, which the model has yet to decide: choose another, or "
                "set backend.rehearsals=FOLDER to measure them first"
            )


def _predictor(config: Config) -> Guarded | None:
    if config.predictor.get("_target_") is None:
        return None
    predictor = build(config.predictor, "predictor", Predictor)
    if not 0 <= config.prediction.latency_s < inf:
        raise BadInput(f"prediction.latency_s: {config.prediction.latency_s} is not a finite number >= 0")
    with named("prediction.fallback_tokens"):
        return Guarded(predictor, config.prediction.fallback_tokens)


def _workload(config: Any) -> WorkloadConfig:
    if not isinstance(config, SyntheticConfig | InstructionsConfig | TraceConfig):
        raise BadInput(
            "workload: its YAML has to begin with the schema, defaults: [/schema/workload/synthetic@_here_, _self_] "
            "or instructions or trace in its place"
        )
    return config


def _metrics(config: Config, classes: Sequence[str]) -> MetricOptions:
    """Without a single promise there is no goodput."""
    if not any(bound is not None for targets in config.slo.values() for bound in vars(targets).values()):
        return replace(config.metrics, slos={})
    if unknown := sorted(set(classes) - set(config.slo)):
        raise BadInput(f"slo: the workload has requests of class {unknown[0]!r}, and there is no slo.{unknown[0]}")
    return config.metrics


def _longest(device: Device) -> int:
    able = device.capabilities
    return min(able.max_model_len, able.num_blocks * able.block_size)
