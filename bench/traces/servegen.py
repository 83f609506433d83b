"""ServeGen's client files (alibaba/ServeGen, Apache-2.0): requests are sampled, not replayed.

A file holds ``{client: {windows: [[t, rate, cv, family, a, b], ...], dists: {slot: {input_tokens, output_tokens}}}}``:
ten-minute windows from second `t` on with `rate` requests a second and gaps of a family (Gamma or Weibull of shape
`a`), and per six-hour slot the lengths that occurred with their probabilities. Each window gets rate x 600 requests,
as many as the data had, with gaps of the family scaled to fill it. Each client is a tenant.
"""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from backend.traffic import Column
from bench.errors import BadInput
from bench.traces.files import check_file
from bench.traces.reading import Loaded, in_order
from bench.traffic.seeds import stream
from bench.traffic.times import picoseconds

WINDOW_S = 600


def read(path: Path, strict: bool, seed: int) -> Loaded:
    """Every client draws from a stream of its own name; there is nothing to skip, so `strict` makes no difference."""
    clients = _load(path)
    parts = []
    for name, client in clients.items():
        try:
            parts.extend(_sample(name, client, stream(seed, f"servegen/{name}")))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise BadInput(f"{path}: client {name}: not windows and dists as in ServeGen ({error!r})") from error
    rows = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    if rows.empty:
        raise BadInput(f"{path}: no requests")
    return Loaded(in_order(rows), {"clients": len(clients), "rows": len(rows)})


def _load(path: Path) -> dict[str, Any]:
    check_file(path)
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        clients = json.loads(content)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise BadInput(f"{path}: cannot be read as JSON: {error}") from error
    if not isinstance(clients, dict):
        raise BadInput(f"{path}: not an object of clients")
    return clients


def _sample(name: str, client: dict[str, Any], rng: np.random.Generator) -> list[pd.DataFrame]:
    parts = []
    slots = sorted(int(slot) for slot in client["dists"])
    for start, rate, _, family, shape, _ in client["windows"]:
        dists = client["dists"][str(max(slot for slot in slots if slot <= start))]
        count = round(rate * WINDOW_S)
        columns = {
            "arrival": picoseconds(start + _within(family, shape, count, rng)),
            "prompt_tokens": _lengths(dists["input_tokens"], count, rng),
            "output_tokens": _lengths(dists["output_tokens"], count, rng),
            "tenant": np.full(count, name, object),
        }
        parts.append(pd.DataFrame(columns))
    return parts


def _within(family: str, shape: float, count: int, rng: np.random.Generator) -> Any:
    """(count,) seconds into a window, the last gap reaching to its end."""
    if family not in ("Gamma", "Weibull") or not shape > 0:
        raise ValueError(f"{family} of shape {shape}")
    draw = rng.standard_gamma if family == "Gamma" else rng.weibull
    reached = np.cumsum(np.maximum(draw(shape, count + 1), np.finfo(float).tiny))
    return WINDOW_S * reached[:-1] / reached[-1]


def _lengths(histogram: list[list[float]], count: int, rng: np.random.Generator) -> Column:
    values, weights = np.asarray(histogram[0], np.int64), np.asarray(histogram[1], float)
    if values.min() < 1:
        raise ValueError(f"a length of {values.min()}")
    return rng.choice(values, count, p=weights / weights.sum())
