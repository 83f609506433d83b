"""What every script in this folder shares: one JSON object a line, and how long a fixed piece of Python takes here."""

from __future__ import annotations

import heapq
import json
import time
from collections.abc import Callable


def show(figure: str, value: float, unit: str, target: str | None = None) -> None:
    """`target` reads like ">= 20000"; None where the figure is for comparison only."""
    print(json.dumps({"figure": figure, "value": float(f"{value:.5g}"), "unit": unit, "target": target}), flush=True)


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def calibration() -> float:
    """Turns a second of a loop of heap, dictionary and integer work: the machine's speed, which drifts."""
    turns = 200_000
    return turns / seconds(lambda: _loop(turns))


def _loop(turns: int) -> None:
    heap = list(range(64))
    seen: dict[int, int] = {}
    for turn in range(turns):
        low = heapq.heapreplace(heap, turn * 7919 % 10007)
        seen[low] = seen.get(low, 0) + turn
