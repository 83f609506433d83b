"""Does a way of running a model give the model's own numbers? Asked once, when it is loaded."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from backend.torch_device.kv_cache import CacheShape, KVCache
from backend.torch_device.loading import Loaded
from backend.torch_device.runner import Runner
from backend.torch_device.step_inputs import Piece, step_inputs

logger = logging.getLogger(__name__)

LENGTHS = (40, 7)
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.3, torch.float16: 0.05}
"""Of the standard deviation of the logits: rounding alone stays well below, another formula does not."""


@dataclass(frozen=True, slots=True)
class Reference:
    prompts: list[list[int]]
    logits: list[torch.Tensor]  # for each prompt (length, vocabulary)
    place: torch.device


def reference(model: Any) -> Reference:
    """What the unpatched model says to two prompts, each alone."""
    vocabulary = model.config.vocab_size
    prompts = [np.random.default_rng(0).integers(vocabulary, size=length).tolist() for length in LENGTHS]
    with torch.inference_mode():
        ids = [torch.tensor([prompt], device=model.device) for prompt in prompts]
        logits = [model(input_ids=one, use_cache=False).logits[0].float().cpu() for one in ids]
    return Reference(prompts, logits, model.device)


def disagreement(runner: Runner, shape: CacheShape, block_size: int, expected: Reference, place: torch.device) -> float:
    """Root mean square difference over the standard deviation of the logits, the largest over four sampled rows.

    A chunk of one prompt beside most of another, then the rest of it beside a decode, in blocks out of order.
    """
    blocks = [-(-length // block_size) for length in LENGTHS]
    cache = KVCache(shape, sum(blocks), block_size, place)
    order = list(range(sum(blocks)))[::-1]
    tables = order[: blocks[0]], order[blocks[0] :]
    worst = 0.0
    for spans in (((0, 17), (0, 6)), ((17, 40), (6, 7))):
        pieces = [Piece(a, b - a, table, True) for (a, b), table in zip(spans, tables, strict=True)]
        step = step_inputs(pieces, block_size)
        step.ids[:] = [i for (a, b), prompt in zip(spans, expected.prompts, strict=True) for i in prompt[a:b]]
        got = runner.logits(step, cache).cpu()
        for (_, end), row, known in zip(spans, got, expected.logits, strict=True):
            want = known[end - 1]
            worst = max(worst, float((row - want).square().mean().sqrt() / want.std()))
    return worst


def agrees(difference: float, dtype: torch.dtype) -> bool:
    return difference <= TOLERANCE[dtype]  # a NaN does not


def runs_rightly(runner: Runner, loaded: Loaded, block_size: int, expected: Reference) -> bool:
    difference = disagreement(runner, loaded.cache, block_size, expected, expected.place)
    right = agrees(difference, loaded.cache.dtype)
    say: Any = logger.info if right else logger.warning
    say("%s: %s; differs from the model itself by %.2g of its spread", loaded.name, runner.description, difference)
    return right
