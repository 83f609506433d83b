from __future__ import annotations

import pytest

from backend.errors import BadConfig
from backend.hardware import GPUS, MODELS, ModelFigures, gpu_figures, model_figures, pool_blocks


@pytest.mark.parametrize(
    ("name", "kv_bytes", "weight_bytes"),
    [
        ("Llama-3.1-8B", 131_072, 16_060_522_496),  # 2 x 32 layers x 8 x 128 x 2 bytes
        ("Llama-2-7B", 524_288, 13_476_831_232),  # no grouping: four times as much
        ("SmolLM2-135M", 23_040, 269_030_016),
    ],
)
def test_bytes_of_shipped_models(name: str, kv_bytes: int, weight_bytes: int) -> None:
    model = model_figures(name)
    assert (model.kv_bytes_per_token, model.weight_bytes) == (kv_bytes, weight_bytes)


def test_heads_times_head_dim_need_not_be_the_hidden_size() -> None:
    model = ModelFigures(
        "odd", 0, layers=2, hidden=128, heads=8, kv_heads=2, head_dim=24, dtype_bytes=4, max_model_len=1
    )
    assert model.kv_bytes_per_token == 768


def test_parameters_follow_from_the_shapes_of_the_configs() -> None:
    shapes = {  # vocabulary, intermediate size, embeddings tied (config.json)
        "Llama-3.1-8B": (128_256, 14_336, False),
        "Llama-2-7B": (32_000, 11_008, False),
        "SmolLM2-135M": (49_152, 1536, True),
    }
    assert shapes.keys() == MODELS.keys()
    for name, (vocabulary, intermediate, tied) in shapes.items():
        m = MODELS[name]
        attention = 2 * m.hidden * m.head_dim * (m.heads + m.kv_heads)
        layer = attention + 3 * m.hidden * intermediate + 2 * m.hidden
        assert m.params == m.layers * layer + m.hidden + vocabulary * m.hidden * (1 if tied else 2), name


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(BadConfig, match=r"unknown model 'Llama-9': known are Llama-3.1-8B, Llama-2-7B, SmolLM2-135M"):
        model_figures("Llama-9")
    with pytest.raises(BadConfig, match=r"unknown GPU 'H300': known are A10G, A100-80G, H100, H200"):
        gpu_figures("H300")


def test_pool_is_what_the_weights_leave() -> None:
    # 0.9 x 80 GB - 16.06 GB = 55.94 GB over 16 x 131,072 bytes
    assert pool_blocks(MODELS["Llama-3.1-8B"], GPUS["H100"], 16) == 26_674
    # one block more would not fit, and half the block size makes about twice the blocks
    assert pool_blocks(MODELS["Llama-3.1-8B"], GPUS["H100"], 8) in (53_348, 53_349)


def test_pool_without_room_says_what_is_too_large() -> None:
    huge = ModelFigures("huge", 20 * 10**9, 32, 4096, 32, 8, 128, dtype_bytes=2, max_model_len=4096)
    with pytest.raises(BadConfig, match=r"huge on A10G: no block of 16 tokens fits beside 40.0 GB"):
        pool_blocks(huge, GPUS["A10G"], 16)
    with pytest.raises(BadConfig, match=r"utilisation=1\.5"):
        pool_blocks(MODELS["SmolLM2-135M"], GPUS["A10G"], 16, utilisation=1.5)
