"""Streams that run as unhelpfully as streams may: whatever is not forced to happen may still wait."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from backend.torch_device.lanes import Act
from policies.api import Time

IN, COMPUTE, OUT = range(3)


@dataclass
class Step:
    lanes: LooseLanes
    number: int
    launched: Time

    def land(self) -> tuple[Time, Time]:
        self.lanes.run_until(self.number)
        return self.launched, self.lanes.clock()


class LooseLanes:
    """Each lane is in order, and a step's compute waits for its copy in, its copy out for its compute: no more."""

    captures = False

    def __init__(self, clock: Callable[[], Time], seed: int) -> None:
        self.clock = clock
        self._rng = np.random.default_rng(seed)
        self._queues: tuple[deque[Act], ...] = (deque(), deque(), deque())
        self._done = [0, 0, 0]
        self._launched = 0
        self._lock = threading.Lock()

    def set_clock(self, clock: Callable[[], Time]) -> None:
        self.clock = clock

    def launch(self, copy_in: Act, compute: Act, copy_out: Act) -> Step:
        with self._lock:
            for queue, act in zip(self._queues, (copy_in, compute, copy_out), strict=True):
                queue.append(act)
            self._launched += 1
            for _ in range(int(self._rng.integers(4))):
                self._advance()
            return Step(self, self._launched, self.clock())

    def record(self, act: Act) -> Act:
        act()
        return act

    def settle(self) -> None:
        self.run_until(self._launched)

    def run_until(self, number: int) -> None:
        with self._lock:
            while self._done[OUT] < number:
                self._advance()

    def _advance(self) -> None:
        """One act of a lane that may go on, if there is any."""
        free = [
            lane
            for lane in (IN, COMPUTE, OUT)
            if self._queues[lane] and (not lane or self._done[lane - 1] > self._done[lane])
        ]
        if free:
            lane = int(self._rng.choice(free))
            with torch.inference_mode():
                self._queues[lane].popleft()()
            self._done[lane] += 1
