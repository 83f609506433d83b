"""From logits to ids. A draw depends on the request's seed and the number of the token, on nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from backend.api import Sampling


def uniform(seed: int, index: int) -> float:
    """The random number in [0, 1) with which a request of `seed` draws its output token number `index` (from 0)."""
    generator = np.random.Generator(np.random.Philox(key=seed % 2**64, counter=index))
    return float(generator.random())


@dataclass(frozen=True, slots=True)
class Draws:
    """The rows of a batch that are drawn at random, D of them; first those that are drawn from all tokens."""

    rows: npt.NDArray[np.int64]  # (D,) of the logits
    top_k: npt.NDArray[np.int64]  # (D,) 0: all
    numbers: npt.NDArray[np.float64]  # (D, 3) temperature, top_p, random number
    free: int
    """So many have neither top_k nor top_p: their tokens need no order."""

    @property
    def limit(self) -> int:
        """No more of the best tokens than this are of interest to the others; 0: all may be."""
        limits = self.top_k[self.free :]
        return int(limits.max()) if len(limits) and limits.min() > 0 else 0


def draws_of(rows: Sequence[tuple[Sampling, int, int]]) -> Draws:
    """For each row of the logits (sampling, seed, number of the output token)."""
    drawn = [(sampling, i, uniform(seed, n)) for i, (sampling, seed, n) in enumerate(rows) if sampling.temperature > 0]
    drawn.sort(key=lambda draw: _cuts(draw[0]))  # stable
    return Draws(
        np.array([i for _, i, _ in drawn], dtype=np.int64),
        np.array([sampling.top_k for sampling, _, _ in drawn], dtype=np.int64),
        np.array([(s.temperature, s.top_p, random) for s, _, random in drawn], dtype=np.float64).reshape(-1, 3),
        sum(not _cuts(sampling) for sampling, _, _ in drawn),
    )


def _cuts(sampling: Sampling) -> bool:
    return sampling.top_k > 0 or sampling.top_p < 1


def sample(logits: torch.Tensor, draws: Draws, parts: Sequence[torch.Tensor] | None = None) -> torch.Tensor:
    """`logits` (n, vocabulary) to ids (n,): the likeliest, or drawn where `draws` says so.

    `parts`: rows, top_k and numbers of `draws` where the logits are, if that is not the host. Nothing waits for them.
    """
    ids = _likeliest(logits)
    if not len(draws.rows):
        return ids
    if parts is None:
        parts = [torch.from_numpy(part) for part in (draws.rows, draws.top_k, draws.numbers)]
    rows, top_k, numbers = parts
    free, chosen = draws.free, logits.index_select(0, rows)
    if free:
        ids.index_copy_(0, rows[:free], _drawn(chosen[:free], numbers[:free]))
    if free < len(rows):
        ids.index_copy_(0, rows[free:], _drawn_of_best(chosen[free:], numbers[free:], top_k[free:], draws.limit))
    return ids


def _likeliest(logits: torch.Tensor) -> torch.Tensor:
    """On the processor numpy finds it eight times as fast as torch, on one thread."""
    return torch.from_numpy(logits.numpy().argmax(axis=-1)) if logits.is_cpu else logits.argmax(dim=-1)


def _drawn(logits: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """By temperature alone."""
    return _inverse(torch.softmax(logits.double() / numbers[:, :1], dim=-1), numbers)[:, 0]


def _drawn_of_best(logits: torch.Tensor, numbers: torch.Tensor, top_k: torch.Tensor, limit: int) -> torch.Tensor:
    """Temperature, then top-k, then top-p of what is left. `limit`: of so many of the best tokens; 0: of all."""
    scaled = logits.double() / numbers[:, :1]
    if limit:
        scaled, order = torch.topk(scaled, min(limit, scaled.shape[1]))
    else:
        scaled, order = torch.sort(scaled, descending=True, stable=True)
    rank = torch.arange(scaled.shape[1], device=scaled.device)
    scaled = scaled.masked_fill((top_k[:, None] > 0) & (rank >= top_k[:, None]), -torch.inf)
    weights = torch.softmax(scaled, dim=-1)
    top_p, before = numbers[:, 1:2], torch.cumsum(weights, dim=-1) - weights
    weights = weights.masked_fill((top_p < 1) & (before >= top_p), 0.0)
    return order.gather(1, _inverse(weights, numbers))[:, 0]


def _inverse(weights: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """(D, 1) columns at which the running sum of `weights` (D, tokens) passes its share; the sum need not be 1."""
    sums = torch.cumsum(weights, dim=-1)
    at = torch.searchsorted(sums, sums[:, -1:] * numbers[:, 2:], right=True)
    return at.clamp(max=weights.shape[1] - 1)
