"""From logits to ids. A draw depends on the request's seed and the number of the token, on nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from backend.api import Sampling


def uniform(seed: int, index: int) -> float:
    """The random number in [0, 1) with which a request of `seed` draws its output token number `index` (from 0)."""
    generator = np.random.Generator(np.random.Philox(key=seed % 2**64, counter=index))
    return float(generator.random())


def draw(logits: torch.Tensor, sampling: Sampling, random: float) -> int:
    """One id from one row of logits: temperature, then top-k, then top-p of what is left, then the inverse CDF."""
    scaled = logits.double() / sampling.temperature
    order: torch.Tensor | None = None
    if sampling.top_k:
        scaled, order = torch.topk(scaled, min(sampling.top_k, len(scaled)))
    elif sampling.top_p < 1:
        scaled, order = torch.sort(scaled, descending=True, stable=True)
    weights = torch.softmax(scaled, dim=0)
    if sampling.top_p < 1:
        before = torch.cumsum(weights, dim=0) - weights
        weights = torch.where(before < sampling.top_p, weights, 0.0)
    sums = torch.cumsum(weights, dim=0)
    at = torch.searchsorted(sums, sums[-1] * random, right=True).clamp(max=len(sums) - 1)
    return int(at if order is None else order[at])


def sample(logits: torch.Tensor, rows: Sequence[tuple[Sampling, int, int]]) -> list[int]:
    """`logits` (n, vocabulary); for each row (sampling, seed, number of the output token)."""
    ids: list[int] = logits.argmax(dim=-1).tolist()
    for i, (sampling, seed, index) in enumerate(rows):
        if sampling.temperature > 0:
            ids[i] = draw(logits[i], sampling, uniform(seed, index))
    return ids
