"""Greedy ids in fp32 are those of `generate`, however the work is batched, cut, overlapped or interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM

from backend.torch_device.device import TorchDevice
from torch_laws import (
    FREE,
    PROMPTS,
    THREE,
    alone,
    neighbour_cancelled_after,
    preempted_after,
    preempted_for_want_of_blocks,
)
from torch_models import generated, tiny
from torch_pump import Ask, Pump

COUNT = 20
WAYS: dict[str, dict[str, Any]] = {"fused": {}, "modules": {"fused": False}, "gathered": {"compiled": False}}
HOW = {"fused": "one fused call", "modules": "own modules, attention by a paged", "gathered": "gathered blocks"}


@pytest.fixture(scope="module", params=["llama", "qwen2", "qwen3", "gpt2"])
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def solo(family: str) -> list[list[int]]:
    return alone(family, PROMPTS, COUNT)


@pytest.fixture(scope="module", params=list(WAYS))
def device(request: pytest.FixtureRequest, family: str) -> Iterator[TorchDevice]:
    made = TorchDevice(tiny(family), num_blocks=60, **WAYS[request.param])
    way = "modules" if family == "gpt2" and request.param == "fused" else request.param
    assert HOW[way] in made.description
    yield made
    made.shutdown()


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize(("seqs", "budget"), [(1, 64), (2, 17), (4, 100), (8, 24)])
def test_any_batch_gives_the_ids_of_generate(
    device: TorchDevice, solo: list[list[int]], seqs: int, budget: int, overlap: bool
) -> None:
    pump = Pump(device, overlap, max_num_seqs=seqs, max_num_batched_tokens=budget)
    assert [a.ids for a in pump.run([Ask(p, COUNT, FREE) for p in PROMPTS])] == solo


def test_whole_prompts_and_late_arrivals(device: TorchDevice, solo: list[list[int]]) -> None:
    pump = Pump(device, max_num_batched_tokens=256, chunked_prefill=False)
    assert [a.ids for a in pump.run([Ask(p, COUNT, FREE, arrives=3 * i) for i, p in enumerate(PROMPTS)])] == solo


@pytest.mark.parametrize("batching", ["static", "dynamic"])
def test_padding_is_nobodys(device: TorchDevice, solo: list[list[int]], batching: str) -> None:
    asks = [Ask(p, 3 + 2 * i, FREE) for i, p in enumerate(PROMPTS)]
    answers = Pump(device, batching=batching, max_num_seqs=4).run(asks)
    assert [a.ids for a in answers] == [ids[: 3 + 2 * i] for i, ids in enumerate(solo)]


@pytest.fixture(scope="module")
def fast() -> Iterator[TorchDevice]:
    made = TorchDevice(tiny("llama"), num_blocks=60)
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def llama_solo() -> list[list[int]]:
    return alone("llama", THREE, COUNT)


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("k", range(1, COUNT + 2))
def test_preempted_right_after_dispatching_step_k(
    fast: TorchDevice, llama_solo: list[list[int]], k: int, overlap: bool
) -> None:
    preempted_after(fast, llama_solo, k, overlap)


@pytest.mark.parametrize("k", range(2, COUNT, 3))
def test_neighbours_cancelled_after_step_k(fast: TorchDevice, llama_solo: list[list[int]], k: int) -> None:
    neighbour_cancelled_after(fast, llama_solo, k)


def test_too_few_blocks_preempt_and_recompute() -> None:
    """200 outputs on 36 blocks of 16: about 62 would be needed."""
    small = TorchDevice(tiny("llama"), num_blocks=36)
    preempted_for_want_of_blocks(small, 200)
    small.shutdown()


@pytest.mark.parametrize("block_size", [2, 4, 8, 16, 32, 48])
@pytest.mark.parametrize(
    "changes",
    [
        {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 24, "hidden_size": 128},
        {"num_key_value_heads": 1, "head_dim": 8, "tie_word_embeddings": True},
        {"num_key_value_heads": 8, "head_dim": 80, "intermediate_size": 52},
    ],
)
def test_shapes_of_heads_and_blocks(changes: dict[str, Any], block_size: int) -> None:
    made = TorchDevice(tiny("llama", **changes), num_blocks=400 // block_size, block_size=block_size)
    answers = Pump(made, max_num_batched_tokens=20).run([Ask(p, 10, FREE) for p in PROMPTS[:4]])
    made.shutdown()
    model = tiny("llama", **changes)
    assert made.description.startswith("one fused call")
    assert [a.ids for a in answers] == [generated(model, p, 10) for p in PROMPTS[:4]]


def test_a_trained_model(shared: Path) -> None:
    folder = shared / "data" / "tiny260k"
    model = AutoModelForCausalLM.from_pretrained(folder)
    asks = [Ask([1], 60), Ask([1, 403], 60), Ask([1, 407, 261, 378], 60)]
    made = TorchDevice(folder, num_blocks=40)
    answers = Pump(made).run(asks)
    made.shutdown()
    for ask, answer in zip(asks, answers, strict=True):
        expected = generated(model, list(ask.prompt), 60)
        if 2 in expected:
            expected = expected[: expected.index(2) + 1]
        assert answer.ids == expected
