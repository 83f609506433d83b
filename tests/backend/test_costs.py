from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.api import Batch, Chunk
from backend.config import MILLISECOND as MS
from backend.costs import ConstantCost, CostModel, LinearCost, PaddedCost, RooflineCost
from backend.errors import BadConfig
from backend.hardware import GPUS, MODELS, ModelFigures

LLAMA, H100 = MODELS["Llama-3.1-8B"], GPUS["H100"]


@dataclass(frozen=True)
class Member:
    at: int  # position in batch 1, when it decodes
    id: str = "r"
    table: tuple[int, ...] = ()

    def position(self, batch: int) -> int:
        return self.at + batch - 1


def batch(contexts: Sequence[int] = (), chunks: Sequence[tuple[int, int]] = (), padding: int = 0) -> Batch:
    """Decodes by the tokens that they attend to, pieces of prefill by (start, count)."""
    return Batch(
        number=1,
        decodes=[Member(context - 1) for context in contexts],
        chunks=[Chunk(Member(0), start, count, last=True) for start, count in chunks],
        padding=padding,
        context_tokens=sum(contexts) + sum(start + count for start, count in chunks),
    )


def later(first: Batch, steps: int) -> Batch:
    return replace(first, number=1 + steps, context_tokens=first.context_tokens + steps * len(first.decodes))


MODELS_OF_COST = [
    ConstantCost(10),
    LinearCost(2, per_token_us=30, per_kv_token_ns=40),
    PaddedCost(1, per_seq_us=20, per_padded_kv_ns=160),
    RooflineCost(LLAMA, H100, compute_efficiency=0.6, memory_efficiency=0.8, overhead_ms=0.5),
    RooflineCost(MODELS["SmolLM2-135M"], GPUS["A10G"]),
]
by_name = pytest.mark.parametrize("cost", MODELS_OF_COST, ids=lambda cost: type(cost).__name__)

contexts_ = st.lists(st.integers(1, 5000), max_size=40)
chunks_ = st.lists(st.tuples(st.integers(0, 4000), st.integers(1, 4000)), max_size=3)


@by_name
@given(contexts=contexts_, chunks=chunks_, padding=st.integers(0, 8), steps=st.integers(0, 10_000))
def test_lines_are_the_time_of_later_steps(
    cost: CostModel, contexts: list[int], chunks: list[tuple[int, int]], padding: int, steps: int
) -> None:
    first = batch(contexts, chunks, padding)
    time = max(start + slope * steps for start, slope in cost.lines(first))
    assert time == cost.time(later(first, steps))
    assert type(time) is int


@by_name
@given(contexts=contexts_, chunks=chunks_, more=st.tuples(st.integers(0, 4000), st.integers(1, 4000)))
def test_more_work_never_costs_less(
    cost: CostModel, contexts: list[int], chunks: list[tuple[int, int]], more: tuple[int, int]
) -> None:
    plain = cost.time(batch(contexts, chunks))
    assert cost.time(batch([*contexts, more[1]], chunks)) >= plain
    assert cost.time(batch(contexts, [*chunks, more])) >= plain
    assert cost.time(batch(contexts, chunks, padding=1)) >= plain


def test_constant() -> None:
    assert ConstantCost(27.88).lines(batch([5], [(0, 9)])) == ((27_880_000_000, 0),)


def test_linear_by_hand() -> None:
    cost = LinearCost(2, per_token_us=30, per_kv_token_ns=40)
    # 2 ms + (2 decodes + 1 padding + 100 prefill) x 30 us + (10 + 20 + 150) x 40 ns; two contexts grow
    assert cost.lines(batch([10, 20], [(50, 100)], padding=1)) == ((2 * MS + 103 * 30_000_000 + 180 * 40_000, 80_000),)


def test_padded_by_hand_in_units_of_an_iteration() -> None:
    cost = PaddedCost(1, per_seq_us=20, per_padded_kv_ns=160)
    # 1 + 0.02 x 32 + 1.6e-4 x 32 x 500 = 4.2, whatever the other 31 hold
    assert cost.time(batch([500] + [7] * 31)) == 4_200_000_000
    assert cost.time(batch([500] + [7] * 15, padding=16)) == 4_200_000_000
    assert cost.time(batch([7] * 31, [(200, 300)])) == 4_200_000_000
    # the piece of prefill is the longest until a decode has outgrown it
    assert max(a + b * 493 for a, b in cost.lines(batch([7] * 31, [(200, 300)]))) == 4_200_000_000
    assert max(a + b * 494 for a, b in cost.lines(batch([7] * 31, [(200, 300)]))) == 4_205_120_000


def test_one_decode_on_an_h100_takes_the_time_to_read_the_weights() -> None:
    step = RooflineCost(LLAMA, H100).time(batch([1]))
    assert step == pytest.approx(16_060_522_496 / 3.35e12 * 1e12, rel=1e-4)  # 4.794 ms
    assert RooflineCost(LLAMA, GPUS["H200"]).time(batch([1])) == pytest.approx(step * 3.35 / 4.8, rel=1e-4)


def test_prefill_is_bound_by_compute() -> None:
    # 8,192 tokens x 16.06 GFLOP = 131.6 TFLOP, and 8192 x 8193 / 2 pairs x 524,288 FLOP = 17.6 TFLOP, at 989.4 TFLOPS
    assert RooflineCost(LLAMA, H100).time(batch(chunks=[(0, 8192)])) == pytest.approx(150.76 * MS, rel=1e-3)


def test_decodes_read_their_kv() -> None:
    cost = RooflineCost(LLAMA, H100)
    one, many = cost.time(batch([1])), cost.time(batch([2000] * 64))
    # 64 x 2,000 read and 64 written, less the one read and the one written, of 131,072 bytes at 3.35 TB/s
    assert many - one == pytest.approx((128_064 - 2) * 131_072 / 3.35, rel=1e-4)


def test_padding_is_computed_but_writes_no_kv() -> None:
    cost = RooflineCost(LLAMA, H100)
    bound_by_memory, bound_by_compute = batch([100] * 8), batch(chunks=[(0, 2048)])
    assert cost.time(replace(bound_by_memory, padding=8)) == cost.time(bound_by_memory)
    padded = cost.time(replace(bound_by_compute, padding=8)) - cost.time(bound_by_compute)
    assert padded == pytest.approx(8 * 16_060_522_496 / 989.4, rel=1e-3)


@given(start=st.integers(0, 3000), count=st.integers(1, 3000), cut=st.integers(1, 2999))
def test_attention_of_prefill_is_the_same_in_pieces(start: int, count: int, cut: int) -> None:
    """A model of nothing but attention: what is computed does not depend on where the prompt was cut."""
    attention = ModelFigures("a", 0, 32, 4096, 32, 0, 128, dtype_bytes=2, max_model_len=8192)
    cost = RooflineCost(attention, H100)
    one = cost.time(batch(chunks=[(0, 1)]))
    whole = cost.time(batch(chunks=[(start, count)]))
    assert whole == one * sum(range(start + 1, start + count + 1))
    if cut < count:
        assert whole == cost.time(batch(chunks=[(start, cut)])) + cost.time(batch(chunks=[(start + cut, count - cut)]))


def test_efficiency_stretches_and_overhead_adds() -> None:
    ideal = RooflineCost(LLAMA, H100)
    real = RooflineCost(LLAMA, H100, compute_efficiency=0.5, memory_efficiency=0.8, overhead_ms=1)
    decode, prefill = batch([100] * 8), batch(chunks=[(0, 4096)])
    assert real.time(decode) - MS == pytest.approx(ideal.time(decode) / 0.8, rel=1e-4)
    assert real.time(prefill) - MS == pytest.approx(ideal.time(prefill) / 0.5, rel=1e-3)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), 1e-10])
def test_figures_that_make_no_sense_are_refused_by_name(value: float) -> None:
    with pytest.raises(BadConfig, match="cost constant: step_ms="):
        ConstantCost(value)
    with pytest.raises(BadConfig, match="cost linear: per_kv_token_ns="):
        LinearCost(1, per_kv_token_ns=value)
    with pytest.raises(BadConfig, match="cost padded: per_seq_us="):
        PaddedCost(1, value, 1)


@pytest.mark.parametrize("value", [0.0, -0.5, 1.01, float("nan")])
def test_efficiency_is_a_share(value: float) -> None:
    with pytest.raises(BadConfig, match="cost roofline: memory_efficiency="):
        RooflineCost(LLAMA, H100, memory_efficiency=value)
