"""When requests come: gaps of mean one, laid out along a rate that may switch and change."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import count as numbers

import numpy as np
import numpy.typing as npt

from backend.traffic import Column
from bench.errors import BadInput
from bench.traffic.config import ArrivalConfig
from bench.traffic.seeds import stream
from bench.traffic.times import LONGEST_ARRIVAL_S, picoseconds

MOST_REQUESTS = 200_000_000
"A typing error, rather than a workload."

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Process:
    """One source of requests. The same arrivals whatever is asked for: asking for more only makes the list longer."""

    key: str  # of its rate, for messages
    stream: str
    config: ArrivalConfig
    rate: float  # a second; inf: all `count` at the start
    count: int | None  # at most so many

    def arrivals(self, seed: int, until: float) -> Column:
        """(n,) times in picoseconds, in order, all below `until` seconds. `count` or `until` must be finite."""
        most = math.inf if self.count is None else self.count
        start = self.config.start_s or 0.0
        if math.isinf(self.rate):
            return picoseconds(np.full(int(most) if start < until else 0, start))
        rng, work = stream(seed, self.stream), np.empty(0)
        for attempt in numbers():
            size = min(most - len(work), 64 + 1.1 * self.rate * until * 2**attempt)
            if size > MOST_REQUESTS:
                raise BadInput(f"{self.key}: {self.rate:g} makes more than {MOST_REQUESTS:,} requests")
            work = np.append(work, self._gaps(rng, math.ceil(size), first=not len(work)))
            times = start + self._on_and_off(self._ramp(np.cumsum(work)))
            if len(times) == most or times[-1] >= until:
                break
        times = times[times < until]
        if len(times) and times[-1] > LONGEST_ARRIVAL_S:
            raise BadInput(f"{self.key}: {self.rate:g} is so low that requests come after {LONGEST_ARRIVAL_S:,} s")
        return picoseconds(times)

    def _gaps(self, rng: np.random.Generator, size: int, first: bool) -> Floats:
        """Of mean one. A constant rate begins with a request, the others with a gap."""
        if self.config.kind == "constant":
            return np.append(0.0, np.ones(size - 1)) if first else np.ones(size)
        if self.config.kind == "gamma":
            shape = self.config.burstiness or 1.0
            return rng.standard_gamma(shape, size) / shape
        return rng.standard_exponential(size)

    def _ramp(self, work: Floats) -> Floats:
        """Seconds of presence after which so many requests are expected."""
        rate, end, within = self.rate, self.config.ramp_to, self.config.ramp_s
        if end is None or within is None:
            return work / rate
        slope = (end - rate) / within
        expected = (rate + end) / 2 * within  # by the end of the ramp
        rising = np.minimum(work, expected)
        speed = np.sqrt(np.maximum(rate**2 + 2 * slope * rising, 0.0))  # rate·t + slope·t²/2 = rising
        ramp: Floats = 2 * rising / (rate + speed)
        return ramp + np.maximum(work - expected, 0.0) / end

    def _on_and_off(self, presence: Floats) -> Floats:
        """Seconds, with the times of absence put in."""
        on, off = self.config.on_s, self.config.off_s
        return presence if on is None or off is None else presence + np.floor(presence / on) * off


def merge(processes: list[Process], seed: int, requests: int | None, duration_s: float | None) -> list[Column]:
    """Arrivals of each process, enough of them that the first `requests` of all are there.

    Of many processes nobody knows beforehand how many each gives: a horizon grows until there are enough.
    """
    longest = math.inf if duration_s is None else duration_s
    total_rate = sum(process.rate for process in processes if math.isfinite(process.rate))
    horizon = longest
    if requests is not None and len(processes) > 1 and total_rate > 0:
        horizon = min(longest, 1.1 * requests / total_rate)
    while True:
        drawn = [process.arrivals(seed, horizon) for process in processes]
        exhausted = all(len(times) == process.count for times, process in zip(drawn, processes, strict=True))
        if horizon == longest or exhausted or sum(map(len, drawn)) >= (requests or math.inf):
            return drawn
        horizon = min(longest, 2 * horizon)
