"""What a user can say about a backend: the fields under ``backend.`` on the command line."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from backend.config import HostTimes
from bench.errors import BadInput

DEVICES = ("auto", "cpu", "cuda")
DTYPES = ("auto", "float32", "bfloat16", "float16")


@dataclass
class ConstantCostConfig:
    kind: str = "constant"
    step_ms: float = 10.0


@dataclass
class LinearCostConfig:
    kind: str = "linear"
    base_ms: float = 10.0
    per_token_us: float = 0.0
    per_kv_token_ns: float = 0.0


@dataclass
class PaddedCostConfig:
    kind: str = "padded"
    base_ms: float = 10.0
    per_seq_us: float = 200.0
    per_padded_kv_ns: float = 1600.0


@dataclass
class RooflineCostConfig:
    kind: str = "roofline"
    compute_efficiency: float = 0.6
    """Share of the datasheet's FLOP/s that kernels reach."""
    memory_efficiency: float = 0.8
    """Share of the datasheet's bandwidth that kernels reach."""
    overhead_ms: float = 0.0


@dataclass
class GpuConfig:
    """A GPU that is not there."""

    kind: str = MISSING
    model: str = "Llama-3.1-8B"
    gpu: str = "H100"
    cost: Any = MISSING
    """One of the classes above; chosen by backend/cost=NAME."""
    block_size: int = 16
    num_blocks: int | None = None
    """KV blocks of the pool; default: what fits beside the weights."""
    gpu_memory_utilization: float = 0.9
    horizon_s: float | None = None
    """Stop then, whatever is unfinished; default: when everything has ended."""


@dataclass
class SimulatedConfig(GpuConfig):
    """`backend=simulated`: in virtual time."""

    kind: str = "simulated"
    host: HostTimes = field(default_factory=HostTimes)
    jump: bool = True
    """Jump over quiet steps; the results are the same without."""


@dataclass
class RealTimeConfig(GpuConfig):
    """`backend=realtime`: by the clock, under the serving driver."""

    kind: str = "realtime"


@dataclass
class SamplingConfig:
    """How a real model draws its next token."""

    temperature: float = 0.0
    """0: the likeliest."""
    top_k: int = 0
    """0: of all."""
    top_p: float = 1.0
    seed: int | None = None
    """Default: another one each time."""

    def check(self) -> None:
        """Raise BadInput naming the first key that cannot work."""
        if not 0 <= self.temperature < math.inf:
            raise BadInput(f"backend.sampling.temperature: {self.temperature} is not a finite number >= 0")
        if self.top_k < 0:
            raise BadInput(f"backend.sampling.top_k: {self.top_k} is not >= 0")
        if not 0 < self.top_p <= 1:
            raise BadInput(f"backend.sampling.top_p: {self.top_p} is not > 0 and <= 1")


@dataclass
class TorchConfig:
    """`backend=torch`: a real model in real time."""

    kind: str = "torch"
    model: str = "smollm2"
    """smollm2, a folder (relative to where the command was started), or an id of the Hugging Face hub."""
    device: str = "auto"
    """auto (a GPU where there is one) | cpu | cuda"""
    dtype: str = "auto"
    """auto (as the model was saved) | float32 | bfloat16 | float16"""
    chat: bool = False
    """A prompt is a user's message, put into the model's chat template."""
    threads: int | None = None
    """Cores that the model uses on CPU; default: all."""
    graph_seqs: int = 256
    """On a GPU: the largest decode batch that is captured as a CUDA graph; 0: none is."""
    block_size: int = 16
    num_blocks: int | None = None
    """KV blocks of the pool; default: what fits `kv_memory`."""
    kv_memory: int | None = None
    """Bytes; default: a quarter of the free memory, on a GPU four fifths of its own."""
    max_model_len: int | None = None
    """Default: the model's."""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    horizon_s: float | None = None
    """Stop then, whatever is unfinished; default: when everything has ended."""
    rehearsals: str | None = None
    """A folder in which the lengths of answers are kept, each workload's measured once, before its first run: for
    policies and predictors that know the truth, and so that all runs have the same lengths. Default: no rehearsal."""

    def check(self) -> None:
        """Raise BadInput naming the first key that cannot work."""
        if self.device not in DEVICES:
            raise BadInput(f"backend.device: {self.device!r} is none of {', '.join(DEVICES)}")
        if self.graph_seqs < 0:
            raise BadInput(f"backend.graph_seqs: {self.graph_seqs} is not >= 0")
        if self.dtype not in DTYPES:
            raise BadInput(f"backend.dtype: {self.dtype!r} is none of {', '.join(DTYPES)}")
        for name in ("threads", "block_size", "num_blocks", "kv_memory", "max_model_len"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BadInput(f"backend.{name}: {value} is not >= 1")
        if self.num_blocks is not None and self.kv_memory is not None:
            raise BadInput("backend.kv_memory: give it or num_blocks, not both")
        self.sampling.check()


@dataclass
class InstalledConfig:
    """`backend=installed`: a device of another package, in real time."""

    kind: str = "installed"
    name: str = MISSING
    """Its entry point in group batchyard.devices, or module:factory."""
    settings: dict[str, Any] = field(default_factory=dict)
    """What it is made with, if anything."""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    horizon_s: float | None = None
    """Stop then, whatever is unfinished; default: when everything has ended."""
