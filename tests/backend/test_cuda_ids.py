"""The GPU's way of running steps, done on the processor: the ids of `generate`, and the draws of the CPU device.

Streams, events and graphs proper need a GPU: benchmarks/cuda_check.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from backend.api import Sampling
from backend.device_kit import check_device
from backend.torch_device.cuda_device import CudaDevice
from backend.torch_device.device import TorchDevice
from backend.torch_device.where import cuda_missing
from loose_lanes import LooseLanes
from torch_laws import (
    FREE,
    PROMPTS,
    THREE,
    alone,
    neighbour_cancelled_after,
    preempted_after,
    preempted_for_want_of_blocks,
)
from torch_models import generated, prompts, tiny
from torch_pump import Ask, Pump

COUNT = 12
MISSING = cuda_missing()


def on_cpu(family: str = "llama", layers: int = 3, **settings: Any) -> CudaDevice:
    return CudaDevice(
        tiny(family, num_hidden_layers=layers), on="cpu", **({"num_blocks": 60, "graph_seqs": 6} | settings)
    )


@pytest.fixture(scope="module", params=["llama", "qwen3", "gpt2"])
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def solo(family: str) -> list[list[int]]:
    return alone(family, PROMPTS, COUNT)


@pytest.fixture(scope="module", params=[0, 6], ids=["as they come", "fixed sizes"])
def device(request: pytest.FixtureRequest, family: str) -> Iterator[CudaDevice]:
    made = on_cpu(family, graph_seqs=request.param)
    yield made
    made.shutdown()


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize(("seqs", "budget"), [(1, 64), (5, 17), (8, 100)])
def test_any_batch_gives_the_ids_of_generate(
    device: CudaDevice, solo: list[list[int]], seqs: int, budget: int, overlap: bool
) -> None:
    pump = Pump(device, overlap, max_num_seqs=seqs, max_num_batched_tokens=budget)
    assert [a.ids for a in pump.run([Ask(p, COUNT, FREE) for p in PROMPTS])] == solo


@pytest.fixture(scope="module")
def llama() -> Iterator[CudaDevice]:
    made = on_cpu()
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def llama_solo() -> list[list[int]]:
    return alone("llama", THREE, COUNT)


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("k", range(1, COUNT + 2))
def test_preempted_right_after_dispatching_step_k(
    llama: CudaDevice, llama_solo: list[list[int]], k: int, overlap: bool
) -> None:
    preempted_after(llama, llama_solo, k, overlap)


@pytest.mark.parametrize("k", range(2, COUNT, 3))
def test_neighbours_cancelled_after_step_k(llama: CudaDevice, llama_solo: list[list[int]], k: int) -> None:
    neighbour_cancelled_after(llama, llama_solo, k)


def test_too_few_blocks_preempt_and_recompute() -> None:
    """80 outputs on 20 blocks of 16: 36 would be needed."""
    small = on_cpu(num_blocks=20)
    preempted_for_want_of_blocks(small, 80)
    small.shutdown()


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_overwritten_before_it_was_read(seed: int, llama_solo: list[list[int]]) -> None:
    """Copies and compute in any order that streams may have: buffers that step by step take turns are enough."""
    made = on_cpu()
    made._lanes = LooseLanes(made._clock, seed)
    for _ in range(3):
        pump = Pump(made, max_num_seqs=3, max_num_batched_tokens=12)
        assert [a.ids for a in pump.run([Ask(p, COUNT, FREE) for p in THREE])] == llama_solo
    made.shutdown()


@pytest.mark.parametrize("overlap", [True, False])
def test_an_end_costs_one_slot_under_overlap(overlap: bool) -> None:
    free = generated(tiny("llama"), PROMPTS[1], 20)
    end = free[7]
    made = CudaDevice(tiny("llama", eos_token_id=end), num_blocks=20, on="cpu", graph_seqs=4)
    pump = Pump(made, overlap)
    [answer] = pump.run([Ask(PROMPTS[1], 20)])
    made.shutdown()
    length = free.index(end) + 1
    assert (answer.ids, answer.reason, pump.steps) == (free[:length], "stop", length + overlap)


def test_draws_are_those_of_the_cpu_device(llama: CudaDevice) -> None:
    ways: list[dict[str, Any]] = [{}, {"top_k": 5}, {"top_p": 0.8}, {"top_k": 40, "top_p": 0.9}, {"temperature": 0.0}]
    asks = [
        Ask(prompt, COUNT, Sampling(**({"temperature": 0.9, "seed": i, "ignore_eos": True} | ways[i % len(ways)])))
        for i, prompt in enumerate(PROMPTS)
    ]
    cpu = TorchDevice(tiny("llama"), num_blocks=60, threads=1)
    expected = [a.ids for a in Pump(cpu).run(asks)]
    cpu.shutdown()
    assert [a.ids for a in Pump(llama, max_num_batched_tokens=20).run(asks)] == expected


def test_the_contract() -> None:
    assert [finding for finding in check_device(on_cpu(layers=1, graph_seqs=4, block_size=8)) if finding.problem] == []


@pytest.mark.skipif(bool(MISSING), reason=f"needs a GPU: {MISSING}")
@pytest.mark.parametrize("way", [{}, {"graph_seqs": 0}, {"attentions": ["gather"]}], ids=str)
def test_the_contract_on_a_gpu(way: dict[str, Any]) -> None:
    device = CudaDevice(tiny("llama"), num_blocks=64, **({"graph_seqs": 8} | way))
    assert [finding for finding in check_device(device) if finding.problem] == []


def test_a_token_that_nobody_made_is_not_fed(llama: CudaDevice) -> None:
    """The engine never asks for it; a wrong id would go unseen."""
    pump = Pump(llama)
    pump.planning = lambda engine: llama._sampled.clear()
    with pytest.raises(ValueError, match="request 0: token 7 was never made"):
        pump.run([Ask(PROMPTS[1], 5, FREE)])
    llama.wait(1)
    llama.close("0")


def test_nothing_is_left_over() -> None:
    made = on_cpu()
    Pump(made).run([Ask(p, 5) for p in prompts(*range(1, 20))])
    assert not made._requests
    assert not made._open
    made.shutdown()
    made.shutdown()
    assert not hasattr(made, "_cache")


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"device cuda: torch .* (is built without CUDA|finds no CUDA device)"):
        CudaDevice(tiny("llama"))
