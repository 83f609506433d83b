"""What a batch costs the simulated device: integer picoseconds, as the maximum of lines in the step index.

While nothing but the contexts of the decodes changes from one step to the next, every model here is a maximum of lines
``a + b * j``; a simulation sums it over many steps at once, exactly, because coefficients are rounded to whole
picoseconds once, when the model is made.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from backend.api import Batch
from backend.config import MICROSECOND, MILLISECOND, SECOND, picoseconds
from backend.errors import BadConfig
from backend.hardware import GpuFigures, ModelFigures
from policies.api import Time

Line = tuple[Time, Time]

NANOSECOND: Time = 10**3


class CostModel(ABC):
    @abstractmethod
    def lines(self, batch: Batch) -> tuple[Line, ...]:
        """Lines (a, b), at least one: device time of the j-th batch after `batch` is the largest ``a + b * j``.

        j = 0 is `batch` itself; each later one has the same members, every decode's context one token longer.
        """

    def time(self, batch: Batch) -> Time:
        return max(self.lines(batch))[0]


class ConstantCost(CostModel):
    """`step_ms` for every batch, whatever is in it."""

    def __init__(self, step_ms: float) -> None:
        self._lines = ((_picoseconds("constant", "step_ms", step_ms, MILLISECOND), 0),)

    def lines(self, batch: Batch) -> tuple[Line, ...]:
        return self._lines


class LinearCost(CostModel):
    """``base + per_token * tokens + per_kv_token * context_tokens``; tokens are decodes, padding and prefill."""

    def __init__(self, base_ms: float, per_token_us: float = 0.0, per_kv_token_ns: float = 0.0) -> None:
        self._base = _picoseconds("linear", "base_ms", base_ms, MILLISECOND)
        self._token = _picoseconds("linear", "per_token_us", per_token_us, MICROSECOND)
        self._kv = _picoseconds("linear", "per_kv_token_ns", per_kv_token_ns, NANOSECOND)

    def lines(self, batch: Batch) -> tuple[Line, ...]:
        cost = self._base + self._token * batch.tokens + self._kv * batch.context_tokens
        return ((cost, self._kv * len(batch.decodes)),)


class PaddedCost(CostModel):
    """``base + per_seq * n + per_padded_kv * n * longest context``: attention padded to the longest of n members.

    n counts decodes, pieces of prefill and padding. Finding the longest is O(members). The multi-bin laws use 1,
    0.02 and 1.6e-4 of an iteration.
    """

    def __init__(self, base_ms: float, per_seq_us: float, per_padded_kv_ns: float) -> None:
        self._base = _picoseconds("padded", "base_ms", base_ms, MILLISECOND)
        self._seq = _picoseconds("padded", "per_seq_us", per_seq_us, MICROSECOND)
        self._kv = _picoseconds("padded", "per_padded_kv_ns", per_padded_kv_ns, NANOSECOND)

    def lines(self, batch: Batch) -> tuple[Line, ...]:
        n = len(batch.decodes) + len(batch.chunks) + batch.padding
        cost = self._base + self._seq * n
        slope = self._kv * n
        prefill = (cost + slope * max((chunk.start + chunk.count for chunk in batch.chunks), default=0), 0)
        if not batch.decodes:
            return (prefill,)
        longest = max(member.position(batch.number) for member in batch.decodes) + 1
        return (prefill, (cost + slope * longest, slope))


class RooflineCost(CostModel):
    """``overhead + max(compute, memory)`` from published figures (roofline: Williams et al., CACM 52(4), 2009).

    compute = (2 * params * tokens + 4 * layers * heads * head_dim * pairs) / (peak flops * compute_efficiency)
    memory = (weights + KV bytes * (context_tokens + tokens written)) / (bandwidth * memory_efficiency)

    Tokens are decodes, padding and prefill; padding writes no KV. Pairs of a query and a key that it attends to: the
    context of a decode, and ``start + 1 .. start + count`` summed over a piece of prefill. Flops as in PaLM
    (arXiv 2204.02311, appendix B; a third of 6N + 12LHQT, the forward pass); the embedding counts as a matrix.
    The efficiencies are the shares of the peaks that kernels reach: 1 is the ideal, fit them to a real run.
    """

    def __init__(
        self,
        model: ModelFigures,
        gpu: GpuFigures,
        *,
        compute_efficiency: float = 1.0,
        memory_efficiency: float = 1.0,
        overhead_ms: float = 0.0,
    ) -> None:
        flop = SECOND / (gpu.flops * _share("compute_efficiency", compute_efficiency))
        byte = SECOND / (gpu.bandwidth * _share("memory_efficiency", memory_efficiency))
        self._overhead = _picoseconds("roofline", "overhead_ms", overhead_ms, MILLISECOND)
        self._weights = self._overhead + round(model.weight_bytes * byte)
        self._token = round(2 * model.params * flop)
        self._pair = round(4 * model.layers * model.heads * model.head_dim * flop)
        self._kv = round(model.kv_bytes_per_token * byte)

    def lines(self, batch: Batch) -> tuple[Line, ...]:
        growth = len(batch.decodes)
        tokens = batch.tokens
        context = pairs = batch.context_tokens
        for chunk in batch.chunks:  # its context holds the pairs of the last position; add those of the others
            pairs += (chunk.count - 1) * (2 * chunk.start + chunk.count) // 2
        compute = self._overhead + self._token * tokens + self._pair * pairs
        memory = self._weights + self._kv * (context + tokens - batch.padding)
        return ((compute, self._pair * growth), (memory, self._kv * growth))


def _picoseconds(model: str, name: str, value: float, unit: int) -> Time:
    if not math.isfinite(value) or value < 0:
        raise BadConfig(f"cost {model}: {name}={value} must be a finite number, at least 0")
    rounded = picoseconds(value, unit)
    if value and not rounded:
        raise BadConfig(f"cost {model}: {name}={value} is less than the half picosecond that the clock resolves")
    return rounded


def _share(name: str, value: float) -> float:
    if not 0 < value <= 1:
        raise BadConfig(f"cost roofline: {name}={value} must be over 0 and at most 1")
    return value
