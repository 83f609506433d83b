"""Independent random streams of one run, derived from its one seed."""

from __future__ import annotations

import numpy as np


def policy_rng(seed: int) -> np.random.Generator:
    """The policy's own draws; the same on every backend."""
    return np.random.default_rng(np.random.SeedSequence([seed, 0x706F6C69]))


def prompt_ids(seed: int, row: int, count: int, vocabulary: int) -> list[int]:
    """`count` token ids for the request of `row`, where the workload gives only a length."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, 0x70726F6D, row]))
    ids: list[int] = rng.integers(vocabulary, size=count).tolist()
    return ids


def draw_seed(seed: int, row: int) -> int:
    """What the request of `row` draws its tokens with: prompts that are alike get answers of their own."""
    state = np.random.SeedSequence([seed, 0x64726177, row]).generate_state(1, np.uint64)
    return int(state[0])
