"""Random streams: independent, named, all from one seed."""

from __future__ import annotations

import hashlib

import numpy as np


def stream(seed: int, name: str) -> np.random.Generator:
    """The generator called `name`: the same in every process, and untouched by what others draw.

    `seed` is any integer >= 0. The name enters through SHA-256, not through `hash()`, which differs by process.
    """
    digest = hashlib.sha256(name.encode()).digest()
    words = [int.from_bytes(digest[at : at + 4], "little") for at in range(0, 16, 4)]
    return np.random.default_rng(np.random.SeedSequence([seed], spawn_key=words))
