"""How long prompts and answers are."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

from backend.traffic import Column
from bench.errors import BadInput
from bench.traffic.config import LengthConfig


def lengths(key: str, config: LengthConfig, count: int, rng: np.random.Generator, root: Path) -> Column:
    """(count,) tokens, at least 1. `key` names the config in messages; paths are relative to `root`."""
    low, high = config.min or 1, config.max
    drawn = np.rint(_draw(key, config, count, rng, root))
    return np.clip(drawn, low, 2**31 - 1 if high is None else high).astype(np.int64)


def _draw(
    key: str, config: LengthConfig, count: int, rng: np.random.Generator, root: Path
) -> npt.NDArray[np.float64] | Column:
    match config:
        case LengthConfig(kind="fixed", mean=float() | int() as mean):
            return np.full(count, float(mean))
        case LengthConfig(kind="uniform", low=int() as low, high=int() as high):
            return rng.integers(low, high, count, endpoint=True)
        case LengthConfig(kind="exponential", mean=float() | int() as mean):
            return rng.exponential(mean, count)
        case LengthConfig(kind="zipf", exponent=float() | int() as exponent, max=int() as high):
            return _zipf(exponent, config.min or 1, high, count, rng)
        case LengthConfig(kind="empirical"):
            return rng.choice(_values(key, config, root), count)
        case LengthConfig(median=float() | int() as median, sigma=float() | int() as sigma):
            return rng.lognormal(math.log(median), sigma, count)
        case LengthConfig(mean=float() | int() as mean):
            variance = math.log1p((1.0 if config.cv is None else config.cv) ** 2)
            return rng.lognormal(math.log(mean) - variance / 2, math.sqrt(variance), count)
    raise BadInput(f"{key}: not complete: {config}")


def _zipf(exponent: float, low: int, high: int, count: int, rng: np.random.Generator) -> Column:
    cumulative = np.cumsum(np.arange(low, high + 1, dtype=np.float64) ** -exponent)
    drawn: Column = low + np.searchsorted(cumulative, rng.random(count) * cumulative[-1], side="right")
    return drawn


def _values(key: str, config: LengthConfig, root: Path) -> Column:
    if config.path is None:
        values, where = config.values or [], f"{key}.values"
    else:
        values, where = _read(key, root / config.path), f"{key}.path: {config.path}"
    if not values or min(values) < 1:
        raise BadInput(f"{where}: needs whole numbers >= 1, got {min(values) if values else 'none'}")
    return np.asarray(values, np.int64)


def _read(key: str, path: Path) -> list[int]:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{key}.path: cannot read {path}: {error}") from error
    values = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            if not line.strip().isdecimal():
                raise BadInput(f"{path}:{number}: {line.strip()!r} is not a whole number")
            values.append(int(line))
    return values
