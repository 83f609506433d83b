"""What a GPU's steps are made of, each part by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from backend.api import Sampling
from backend.torch_device.attention_gather import GatherAttention
from backend.torch_device.attention_varlen import NotHere, VarlenAttention, flash_kind
from backend.torch_device.cuda_lanes import Timeline
from backend.torch_device.decode_steps import DecodeSteps, sizes_up_to
from backend.torch_device.kv_cache import CacheShape, KVCache
from backend.torch_device.modules import ModulesRunner
from backend.torch_device.sampling import draws_of, sample
from backend.torch_device.staging import InTurns, Staging
from backend.torch_device.step_inputs import Piece, StepInputs, step_inputs
from backend.torch_device.step_tensors import tensors_of, tiles_of
from torch_models import VOCABULARY, tiny

MS = 10**9
CPU = torch.device("cpu")
BLOCKS = 140


def test_events_lie_one_after_another_on_the_hosts_clock() -> None:
    """Steps of 10 ms, 2 ms apart, seen as soon as they end; the first is launched at 5."""
    line = Timeline(0)
    assert line.place(launched=5 * MS, gap_ms=6.0, busy_ms=10.0, seen=17 * MS) == (6 * MS, 16 * MS)
    assert line.place(launched=7 * MS, gap_ms=2.0, busy_ms=10.0, seen=90 * MS) == (18 * MS, 28 * MS)


def test_no_step_began_before_it_was_launched_or_ended_after_it_was_seen() -> None:
    line = Timeline(0)
    assert line.place(launched=5 * MS, gap_ms=1.0, busy_ms=10.0, seen=99 * MS) == (5 * MS, 15 * MS)
    started, ended = line.place(launched=6 * MS, gap_ms=10.0, busy_ms=10.0, seen=32 * MS)
    assert (started, ended) == (22 * MS, 32 * MS)


def test_clocks_that_drift_apart_are_kept_together() -> None:
    """A GPU whose milliseconds are 1% long or short, for 10,000 steps of 1 ms: never off by more than a step."""
    for rate in (0.99, 1.01):
        line, before = Timeline(0), 0
        for step in range(10_000):
            begin, end = step * MS, (step + 1) * MS
            started, ended = line.place(begin - MS // 2, 0.0, rate, end)
            assert before <= started <= ended <= end
            assert end - ended < MS
            before = ended


def test_sizes_of_decode_steps() -> None:
    assert sizes_up_to(0) == []
    assert sizes_up_to(1) == [1]
    assert sizes_up_to(6) == [1, 2, 4, 6]
    assert sizes_up_to(40) == [1, 2, 4, 8, 16, 32, 40]
    assert sizes_up_to(256)[-3:] == [224, 240, 256]


def steps(sizes: list[int]) -> tuple[DecodeSteps, list[int]]:
    """On a model of no depth; and the sizes that were recorded, in order."""
    runner = ModulesRunner(tiny("llama"), GatherAttention())
    cache = KVCache(CacheShape(3, 2, 16, torch.float32), 6, 4)
    recorded: list[int] = []

    def record(act: Any) -> Any:
        recorded.append(act.args[0])
        return act

    with torch.inference_mode():
        return DecodeSteps(runner, cache, sizes, 6, VOCABULARY, record), recorded


def test_a_decode_batch_runs_in_the_next_size_and_nothing_else_does() -> None:
    made, recorded = steps([1, 2, 4, 8])
    assert recorded == [8, 4, 2, 1]
    one, wasted, chunk = Piece(3, 1, [1], True), Piece(0, 1, [6], False), Piece(0, 3, [2], True)
    assert [made.fit([one] * n) for n in (1, 2, 3, 5, 8, 9)] == [1, 2, 4, 8, 8, None]
    assert made.fit([one, one, wasted]) == 4
    assert made.fit([one, chunk]) is None
    assert made.fit([wasted, one]) is None  # of the ids that come out, the first would be nobody's
    assert steps([])[0].fit([one]) is None


def test_rows_for_nobody_write_to_the_scratch_block_and_change_nothing() -> None:
    made, _ = steps([1, 4])
    cache, runner = made._cache, made._runner
    cache.data.normal_(generator=torch.Generator().manual_seed(0))
    pieces = [Piece(9, 1, [5, 0, 2], True), Piece(2, 1, [3], True)]
    before = cache.data.clone()
    with torch.inference_mode():
        alone = runner.forward(tensors_of(step_inputs(pieces, 4), 0, CPU), cache)
        cache.data.copy_(before)
        filled = step_inputs([*pieces, *[Piece(0, 1, (6,), False)] * 2], 4)
        together = made.run(tensors_of(filled, 0, CPU))[:2]
    assert torch.allclose(alone, together, atol=1e-5)
    blocks = (before != cache.data).flatten(3).any(-1).any(0).any(0).nonzero()[:, 0].tolist()
    assert set(blocks) == {2, 3, 6}


def test_two_pieces_of_memory_take_turns_and_grow() -> None:
    memory = InTurns(lambda size: torch.zeros(size, dtype=torch.long))
    first, second = memory.of(1, 10), memory.of(2, 5)
    assert (len(first), len(second)) == (10, 5)
    assert memory.of(3, 10).data_ptr() == first.data_ptr()
    assert memory.of(4, 5).data_ptr() == second.data_ptr()
    assert len(memory.of(5, 1000)) == 1000


def test_arrays_arrive_as_they_were() -> None:
    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(9, size=(3, 5)).astype(np.int32),
        np.zeros(0, dtype=np.int32),
        rng.random((4, 3)),
        np.zeros((0, 3)),
        np.arange(17),
    ]
    staging = Staging(CPU)
    for step in (1, 2, 3):
        parcel = staging.pack(step, arrays)
        parcel.copy()
        for array, part in zip(arrays, parcel.parts, strict=True):
            assert part.data_ptr() % 64 == parcel.device.data_ptr() % 64 or not array.size
            np.testing.assert_array_equal(part.numpy(), array)


def test_tiles_cover_each_row_once() -> None:
    starts = np.array([0, 5, 6, 14], dtype=np.int32)
    assert tiles_of(starts, 4).tolist() == [[0, 0], [0, 4], [1, 0], [2, 0], [2, 4]]
    assert tiles_of(starts, 100).tolist() == [[0, 0], [1, 0], [2, 0]]


class OnMeta(VarlenAttention):
    """torch's attention, which knows its shapes without a GPU."""

    def __init__(self) -> None:
        self.description = "shapes only"


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gpt2"])
def test_a_step_asks_the_device_nothing(family: str) -> None:
    """On tensors without numbers: whatever waited for the GPU, or mixed in a tensor of the host, would fail."""
    meta = torch.device("meta")
    model = tiny(family).to(meta, torch.bfloat16)
    runner = ModulesRunner(model, OnMeta())
    kv_heads, dim = (4, 12) if family == "gpt2" else (2, 16)
    cache = KVCache(CacheShape(3, kv_heads, dim, torch.bfloat16), 8, 16, meta)
    mixed = step_inputs([Piece(0, 17, [0, 1], True), Piece(5, 1, [2], True), Piece(3, 4, [4], False)], 16)
    draws = draws_of([(Sampling(temperature=1.0), 1, 2), (Sampling(temperature=1.0, top_k=5, top_p=0.9), 1, 2)])
    parts = [torch.from_numpy(part).to(meta) for part in (draws.rows, draws.top_k, draws.numbers)]
    with torch.inference_mode():
        logits = runner.forward(tensors_of(mixed, 0, meta), cache)
        assert logits.shape == (2, VOCABULARY)
        assert sample(logits, draws, parts).shape == (2,)
        decodes = DecodeSteps(runner, cache, [1, 2], 8, VOCABULARY, lambda act: act)
        assert decodes.run(tensors_of(step_inputs([Piece(5, 1, [2, 3], True)] * 2, 16), 0, meta)).shape[0] == 2


@pytest.mark.parametrize(
    ("capability", "changes", "reason"),
    [
        ((8, 0), {}, "capability 9 and 10 only, not 8"),
        ((9, 0), {"dtype": torch.float32}, "FA3 takes no float32"),
        ((9, 0), {"head_dim": 20}, "FA3 takes no heads of 20"),
        ((9, 0), {}, "flash_attn_interface is not installed"),
        ((10, 0), {}, "flash_attn.cute is not installed"),
    ],
)
def test_why_varlen_attention_is_not_there(capability: tuple[int, int], changes: Any, reason: str) -> None:
    shape = CacheShape(**({"layers": 1, "kv_heads": 2, "head_dim": 64, "dtype": torch.bfloat16} | changes))
    if "installed" in reason and find_spec("flash_attn_interface" if capability[0] == 9 else "flash_attn"):
        pytest.skip("it is installed here")
    with pytest.raises(NotHere, match=reason):
        flash_kind(capability, shape)


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed: it comes with torch for CUDA")
def test_the_triton_kernel_in_its_interpreter() -> None:
    """In a process of its own: triton decides when it is imported."""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    code = "from tests.backend.test_cuda_parts import compare; compare()"
    root = Path(__file__).resolve().parents[2]
    path = os.pathsep.join([str(root), str(root / "tests" / "support"), *sys.path])
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment | {"PYTHONPATH": path}, cwd=root, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr


def compare() -> None:
    """Triton's attention against torch's on gathered blocks: prefill, chunks and decodes, many shapes."""
    from backend.torch_device.attention_triton import TritonAttention

    spans = [(0, 100), (37, 1), (60, 13), (0, 1), (5, 40)]
    decodes = [(99, 1), (37, 1), (0, 1), (15, 1), (16, 1)]
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 4e-3)):
        for kv_heads, group, dim, size in ((2, 4, 16, 16), (1, 3, 24, 4), (2, 1, 80, 48), (1, 12, 64, 2)):
            shape = CacheShape(1, kv_heads, dim, dtype)
            for pieces in (spans, decodes):
                step = _scattered(pieces, size)
                one, other = (
                    _attended(attention, step, size, shape, group * kv_heads)
                    for attention in (GatherAttention(), TritonAttention(shape, group * kv_heads))
                )
                torch.testing.assert_close(other, one, atol=tolerance, rtol=0)


def _scattered(spans: list[tuple[int, int]], size: int) -> StepInputs:
    blocks = iter(np.random.default_rng(0).permutation(BLOCKS).tolist())
    pieces = [Piece(s, n, [next(blocks) for _ in range(-(-(s + n) // size))], True) for s, n in spans]
    return step_inputs(pieces, size)


def _attended(attention: Any, step: StepInputs, size: int, shape: CacheShape, heads: int) -> torch.Tensor:
    torch.manual_seed(0)
    cache = KVCache(shape, BLOCKS, size)
    cache.data.normal_()
    rows = len(step.ids)
    query = torch.randn(heads, rows, shape.head_dim).to(shape.dtype).transpose(0, 1)
    key, value = (torch.randn(rows, shape.kv_heads, shape.head_dim).to(shape.dtype) for _ in range(2))
    attention.bind(tensors_of(step, attention.tile, CPU), cache)
    out = attention.attend(0, query, key, value, shape.head_dim**-0.5)
    assert isinstance(out, torch.Tensor)
    return out
