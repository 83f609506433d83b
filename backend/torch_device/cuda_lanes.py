"""Copies in, compute and copies out on a GPU, each on a stream of its own, and their times from events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from backend.torch_device.lanes import Act
from policies.api import Time

PS_PER_MS = 10**9


class Timeline:
    """Where on the host's clock the events of a GPU lie, which tells only how long one comes after another.

    Each step is placed after the end of the one before. What the host knows keeps the two clocks together: no step
    began before it was launched, none ended after its end was seen.
    """

    def __init__(self, now: Time) -> None:
        self._ended = now

    def place(self, launched: Time, gap_ms: float, busy_ms: float, seen: Time) -> tuple[Time, Time]:
        """Start and end of a step that began `gap_ms` after the end of the one before, and took `busy_ms`."""
        busy = round(busy_ms * PS_PER_MS)
        started = max(self._ended + round(gap_ms * PS_PER_MS), launched)
        started = max(min(started, seen - busy), launched, self._ended)
        self._ended = max(started, min(started + busy, seen))
        return started, self._ended


@dataclass(slots=True)
class CudaFlight:
    lanes: CudaLanes
    launched: Time
    started: torch.cuda.Event
    ended: torch.cuda.Event
    done: torch.cuda.Event

    def land(self) -> tuple[Time, Time]:
        self.done.synchronize()
        return self.lanes.times(self)


class CudaLanes:
    captures = True

    def __init__(self, clock: Callable[[], Time]) -> None:
        self._in, self._compute, self._out = (torch.cuda.Stream() for _ in range(3))  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        self.set_clock(clock)

    def set_clock(self, clock: Callable[[], Time]) -> None:
        """Nothing is under way."""
        self._clock = clock
        self._last = self._mark(self._compute)
        self._last.synchronize()
        self._timeline = Timeline(clock())

    def launch(self, copy_in: Act, compute: Act, copy_out: Act) -> CudaFlight:
        launched = self._clock()
        with torch.cuda.stream(self._in):
            copy_in()
        self._compute.wait_stream(self._in)
        with torch.cuda.stream(self._compute):
            started = self._mark(self._compute)
            compute()
            ended = self._mark(self._compute)
        self._out.wait_event(ended)
        with torch.cuda.stream(self._out):
            copy_out()
        return CudaFlight(self, launched, started, ended, self._mark(self._out))

    def times(self, flight: CudaFlight) -> tuple[Time, Time]:
        """Of each flight once, in order, when it has landed."""
        seen = self._clock()
        gap, busy = self._last.elapsed_time(flight.started), flight.started.elapsed_time(flight.ended)
        self._last = flight.ended
        return self._timeline.place(flight.launched, gap, busy, seen)

    def record(self, act: Act) -> Act:
        """As a CUDA graph; all share one pool of memory. First `act` runs once, which compiles what it needs."""
        torch.cuda.synchronize()  # its memory may just have been written on another stream
        with torch.cuda.stream(self._compute):
            act()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._compute, capture_error_mode="thread_local"):
            act()
        return graph.replay

    def settle(self) -> None:
        torch.cuda.synchronize()

    @staticmethod
    def _mark(stream: torch.cuda.Stream) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(stream)
        return event
