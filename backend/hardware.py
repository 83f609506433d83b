"""Published figures of models and GPUs, for the roofline cost model and the size of the KV pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from backend.errors import BadConfig


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """A dense decoder-only transformer."""

    name: str
    params: int  # embeddings included, tied ones once
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int  # of its own: heads * head_dim need not be `hidden`
    dtype_bytes: int  # of weights and KV
    max_model_len: int

    @property
    def weight_bytes(self) -> int:
        return self.params * self.dtype_bytes

    @property
    def kv_bytes_per_token(self) -> int:
        """One key and one value for each KV head in each layer."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype_bytes


@dataclass(frozen=True, slots=True)
class GpuFigures:
    name: str
    flops: float  # bf16 tensor cores, dense, per second; datasheets print twice that "with sparsity"
    bandwidth: float  # of its memory, bytes per second
    memory: int  # bytes; the datasheet's GB are taken as 10**9


_MODELS = (
    # Parameter counts: metadata of the safetensors on the model's Hugging Face page. All else: the model's config.json.
    # meta-llama/Llama-3.1-8B
    ModelFigures(
        name="Llama-3.1-8B",
        params=8_030_261_248,
        layers=32,
        hidden=4096,
        heads=32,
        kv_heads=8,
        head_dim=128,
        dtype_bytes=2,
        max_model_len=131_072,
    ),
    # meta-llama/Llama-2-7b-hf
    ModelFigures(
        name="Llama-2-7B",
        params=6_738_415_616,
        layers=32,
        hidden=4096,
        heads=32,
        kv_heads=32,
        head_dim=128,
        dtype_bytes=2,
        max_model_len=4096,
    ),
    # HuggingFaceTB/SmolLM2-135M (embeddings tied)
    ModelFigures(
        name="SmolLM2-135M",
        params=134_515_008,
        layers=30,
        hidden=576,
        heads=9,
        kv_heads=3,
        head_dim=64,
        dtype_bytes=2,
        max_model_len=8192,
    ),
)

_GPUS = (
    # AWS/NVIDIA A10G datasheet (2022): BF16 70 | 140 with sparsity TFLOPS, 600 GB/s, 24 GB GDDR6. (The A10 has 125.)
    GpuFigures(name="A10G", flops=70e12, bandwidth=600e9, memory=24 * 10**9),
    # NVIDIA A100 80GB SXM datasheet: BF16 312 | 624 with sparsity TFLOPS, 2,039 GB/s, 80 GB HBM2e.
    GpuFigures(name="A100-80G", flops=312e12, bandwidth=2039e9, memory=80 * 10**9),
    # NVIDIA H100 SXM datasheet: BF16 1,979 TFLOPS with sparsity (whitepaper: 989.4 dense), 3.35 TB/s, 80 GB HBM3.
    GpuFigures(name="H100", flops=989.4e12, bandwidth=3.35e12, memory=80 * 10**9),
    # NVIDIA H200 SXM datasheet: BF16 1,979 TFLOPS with sparsity (the chip of the H100), 4.8 TB/s, 141 GB HBM3e.
    GpuFigures(name="H200", flops=989.4e12, bandwidth=4.8e12, memory=141 * 10**9),
)

MODELS: Mapping[str, ModelFigures] = MappingProxyType({model.name: model for model in _MODELS})
GPUS: Mapping[str, GpuFigures] = MappingProxyType({gpu.name: gpu for gpu in _GPUS})

T = TypeVar("T")


def model_figures(name: str) -> ModelFigures:
    """Raises BadConfig, listing the known ones."""
    return _known("model", name, MODELS)


def gpu_figures(name: str) -> GpuFigures:
    """Raises BadConfig, listing the known ones."""
    return _known("GPU", name, GPUS)


def pool_blocks(model: ModelFigures, gpu: GpuFigures, block_size: int, utilisation: float = 0.9) -> int:
    """KV blocks of `block_size` tokens that fit beside the weights in the `utilisation` share of the memory.

    Activations and the CUDA context are meant to fit in the rest. Raises BadConfig where not one block fits.
    """
    if not 0 < utilisation <= 1:
        raise BadConfig(f"pool of {model.name} on {gpu.name}: utilisation={utilisation} must be over 0 and at most 1")
    if block_size < 1:
        raise BadConfig(f"pool of {model.name} on {gpu.name}: block_size={block_size} must be at least 1")
    room = int(gpu.memory * utilisation) - model.weight_bytes
    blocks = room // (model.kv_bytes_per_token * block_size)
    if blocks < 1:
        raise BadConfig(
            f"pool of {model.name} on {gpu.name}: no block of {block_size} tokens fits beside "
            f"{model.weight_bytes / 1e9:.1f} GB of weights in {utilisation:.0%} of {gpu.memory / 1e9:.0f} GB; "
            "take a larger GPU or a smaller model"
        )
    return blocks


def _known(kind: str, name: str, figures: Mapping[str, T]) -> T:
    if name not in figures:
        raise BadConfig(f"unknown {kind} {name!r}: known are {', '.join(figures)}")
    return figures[name]
