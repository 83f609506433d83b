"""Draws follow the probabilities that the settings leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from backend.api import Sampling
from backend.torch_device.sampling import Draws, draws_of, sample, uniform

LOGITS = torch.log(torch.tensor([0.1, 0.4, 0.05, 0.3, 0.15]))


def drawn(logits: torch.Tensor, sampling: Sampling, numbers: Sequence[float]) -> list[int]:
    """What one row of logits gives for each random number, all of them in one batch."""
    rows = draws_of([(sampling, 0, 0)] * len(numbers))
    told = Draws(rows.rows, rows.top_k, rows.numbers.copy(), rows.free)
    told.numbers[:, 2] = numbers
    return sample(logits.expand(len(numbers), -1), told).tolist()


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(temperature=1.0), [0.1, 0.4, 0.05, 0.3, 0.15]),
        (Sampling(temperature=0.5), [0.01, 0.16, 0.0025, 0.09, 0.0225]),
        (Sampling(temperature=1.0, top_k=2), [0, 4, 0, 3, 0]),
        (Sampling(temperature=1.0, top_p=0.69), [0, 4, 0, 3, 0]),
        (Sampling(temperature=1.0, top_p=0.71), [0, 4, 0, 3, 1.5]),
        (Sampling(temperature=1.0, top_p=0.1), [0, 1, 0, 0, 0]),
        (Sampling(temperature=1.0, top_k=3, top_p=0.5), [0, 4, 0, 3, 0]),
    ],
)
def test_frequencies(sampling: Sampling, expected: list[float]) -> None:
    """The unit interval in 10,000 equal parts: counts are exact to the rounding of the edges."""
    counts = Counter(drawn(LOGITS, sampling, [(i + 0.5) / 10000 for i in range(10000)]))
    share = np.array(expected) / sum(expected)
    assert [counts[i] / 10000 for i in range(5)] == pytest.approx(share.tolist(), abs=2e-4)


def test_the_ends_of_the_interval() -> None:
    sharp = torch.tensor([0.0, -1e9, -1e9])
    for sampling in (Sampling(temperature=1.0), Sampling(temperature=1.0, top_p=0.9)):
        assert drawn(sharp, sampling, [0.0, 0.5, 1 - 2**-53]) == [0, 0, 0]


def test_greedy_takes_the_first_of_equals() -> None:
    assert sample(torch.tensor([[0.0, 2.0, 2.0]]), draws_of([(Sampling(), 0, 0)])).tolist() == [1]


def test_each_row_of_a_batch_is_drawn_as_if_it_were_alone() -> None:
    """Greedy, free, and cut rows side by side, cut at different places."""
    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(8, 50, generator=rng)
    cuts = [(0.0, 0, 1.0), (1.0, 0, 1.0), (0.7, 5, 1.0), (1.3, 0, 0.8), (1.0, 20, 0.5), (0.0, 3, 1.0), (1.0, 1, 1.0)]
    for chosen in (cuts, [cut for cut in cuts if cut[1]], [cut for cut in cuts if not cut[1]]):
        rows = [(Sampling(t, k, p), seed, 7) for seed, (t, k, p) in enumerate(chosen)]
        together = sample(logits[: len(rows)], draws_of(rows)).tolist()
        assert together == [sample(logits[i : i + 1], draws_of([row])).item() for i, row in enumerate(rows)]


def test_random_numbers_are_the_requests_own() -> None:
    draws = [uniform(seed, index) for seed in range(100) for index in range(100)]
    assert len(set(draws)) == len(draws)
    assert uniform(3, 5) == uniform(3, 5)
    assert np.mean(draws) == pytest.approx(0.5, abs=0.01)
    assert np.corrcoef(draws[:-1], draws[1:])[0, 1] == pytest.approx(0, abs=0.03)
    assert 0 <= uniform(-1, 0) < 1
