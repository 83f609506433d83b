"""A simulated GPU from its configuration, in virtual time or by the clock."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from backend.alone import alone_e2el
from backend.config import MICROSECOND, MILLISECOND, EngineConfig, picoseconds
from backend.costs import ConstantCost, CostModel, LinearCost, PaddedCost, RooflineCost
from backend.hardware import GpuFigures, ModelFigures, gpu_figures, model_figures, pool_blocks
from backend.realtime import RealTimeDevice
from backend.simulated import SimulatedDevice
from backend.simulation import Progress, Run, simulate
from backend.traffic import NONE, Column, Traffic
from bench.backends.api import Backend
from bench.backends.config import (
    ConstantCostConfig,
    GpuConfig,
    LinearCostConfig,
    PaddedCostConfig,
    RooflineCostConfig,
    SimulatedConfig,
)
from bench.config import PredictionConfig
from bench.errors import BadInput, named
from policies.api import Policy
from predictors.guard import Guarded


class Simulated(Backend):
    real_time = False

    def __init__(self, config: SimulatedConfig) -> None:
        with named("backend"):
            config.host.check()
        self.config = config
        self.device: SimulatedDevice = gpu(config, SimulatedDevice)

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
        return simulate(
            traffic,
            policy,
            self.device,
            engine,
            host=self.config.host,
            predictor=predictor,
            predictor_latency_s=prediction.latency_s,
            seed=seed,
            horizon_s=self.config.horizon_s,
            jump=self.config.jump,
            progress=progress,
        )

    def alone(self, engine: EngineConfig, requests: pd.DataFrame) -> Column:
        host = self.config.host
        done = (requests["state"] == "completed").to_numpy()
        prompt, output, limit = (requests[c].to_numpy()[done] for c in ("prompt_tokens", "output_tokens", "max_tokens"))
        alone = np.full(len(requests), NONE, dtype=np.int64)
        alone[done] = alone_e2el(
            self.device.cost,
            prompt,
            output,
            output == limit,
            host_plan=picoseconds(host.plan_ms, MILLISECOND) + picoseconds(host.plan_per_seq_us, MICROSECOND),
            host_commit=picoseconds(host.commit_ms, MILLISECOND) + picoseconds(host.commit_per_seq_us, MICROSECOND),
            overlap=engine.overlap,
            max_num_batched_tokens=engine.max_num_batched_tokens,
        )
        return alone


def gpu(config: GpuConfig, kind: type[SimulatedDevice] | type[RealTimeDevice]) -> Any:
    """A device of that kind; its pool is what fits beside the weights, unless `num_blocks` says otherwise."""
    with named("backend.model"):
        model = model_figures(config.model)
    with named("backend.gpu"):
        figures = gpu_figures(config.gpu)
    with named("backend.cost"):
        cost = cost_model(config.cost, model, figures)
    with named("backend"):
        blocks = config.num_blocks
        if blocks is None:
            blocks = pool_blocks(model, figures, config.block_size, config.gpu_memory_utilization)
        return kind(
            cost,
            num_blocks=blocks,
            block_size=config.block_size,
            max_model_len=model.max_model_len,
            name=f"{model.name} on {figures.name}",
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
