"""How long a request takes alone on an idle engine: what `slowdown` compares with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from backend.api import Batch, Chunk
from backend.costs import CostModel
from backend.traffic import Column
from policies.api import Time


@dataclass(frozen=True, slots=True)
class _Alone:
    """The one member of its batches."""

    at: int
    id: str = "alone"
    table: tuple[int, ...] = ()

    def position(self, batch: int) -> int:
        return self.at


def alone_e2el(
    cost: CostModel,
    prompt: Column,
    output: Column,
    by_length: npt.NDArray[np.bool_],
    *,
    host_plan: Time,
    host_commit: Time,
    overlap: bool,
    max_num_batched_tokens: int,
) -> Column:
    """Arrival to the last token handed over, in picoseconds, of requests of `prompt` and `output` tokens; all (n,).

    `by_length`: the end is known before the last step is dispatched (output = max_tokens), so that under overlap no
    step is planned beside it in vain. There are ceil(prompt / max_num_batched_tokens) steps of prefill, the last of
    which makes the first token, then output - 1 of decoding. Without overlap each costs plan + device + commit. Under
    overlap the host commits step m - 1 and plans m + 1 while m runs, and m + 1 starts when all of that is done.
    O(n + longest context), and one evaluation of `cost` for each distinct prompt.
    """
    if len(prompt) == 0:
        return np.zeros(0, dtype=np.int64)
    beside = host_plan + host_commit if overlap else 0  # at least so long is a step
    decode = _decode_times(cost, int((prompt + output).max()))
    decoded = np.concatenate([[0], np.cumsum(np.maximum(decode, beside))])
    prefill, first, last = _prefill_times(cost, prompt, max_num_batched_tokens, beside)
    steps: Column = prefill + decoded[prompt + output - 1] - decoded[prompt]
    count = -(-prompt // max_num_batched_tokens) + output - 1
    if not overlap:
        steps += count * (host_plan + host_commit)
        return steps

    # No commit beside the first step, and no plan beside the last one of an end by length.
    last = np.where(output == 1, last, decode[prompt + output - 2])
    beside_last = np.where(count == 1, 0, host_commit) + np.where(by_length, 0, host_plan)
    steps += np.maximum(last, beside_last) - np.maximum(last, beside)
    steps += np.where(count == 1, 0, np.maximum(first, host_plan) - np.maximum(first, beside))
    steps += host_plan + host_commit
    return steps


def _decode_times(cost: CostModel, count: int) -> Column:
    """Element i: device time of a decode that attends to i + 1 tokens."""
    lines = cost.lines(Batch(1, [_Alone(0)], (), padding=0, context_tokens=1))
    steps = np.arange(count, dtype=np.int64)
    times: Column = np.max([start + slope * steps for start, slope in lines], axis=0)
    return times


def _prefill_times(cost: CostModel, prompt: Column, budget: int, beside: Time) -> tuple[Column, Column, Column]:
    """Sum of all steps of prefill, each at least `beside`, and device time of the first and of the last; all (n,)."""

    def piece(start: int, count: int) -> Time:
        chunk = Chunk(_Alone(0), start, count, last=True)
        return cost.time(Batch(1, (), (chunk,), padding=0, context_tokens=start + count))

    lengths, row = np.unique(prompt, return_inverse=True)
    whole: list[Time] = []  # device time of the pieces that fill the budget
    through = [0]
    times = np.empty((3, len(lengths)), dtype=np.int64)
    for i, length in enumerate(lengths.tolist()):
        full, rest = divmod(length, budget)
        while len(whole) < full:
            whole.append(piece(len(whole) * budget, budget))
            through.append(through[-1] + max(whole[-1], beside))
        last = piece(length - rest, rest) if rest else whole[-1]
        times[:, i] = through[full] + (max(last, beside) if rest else 0), whole[0] if full else last, last
    total, first, final = times[:, row]
    return total, first, final
