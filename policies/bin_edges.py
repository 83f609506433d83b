"""Where one bin of predicted lengths ends and the next begins."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from itertools import accumulate


class Edges:
    """Fixed upper edges, in tokens: a length belongs to the first bin whose edge is at least as long.

    Beyond the last edge, and where the length is NaN, it belongs to the last bin.
    """

    def __init__(self, bins: int, edges: Sequence[float]) -> None:
        self.bins = bins
        self.edges = list(edges)

    def bin(self, length: float) -> int:
        return self.bins - 1 if math.isnan(length) else min(bisect_left(self.edges, length), self.bins - 1)

    def upper(self, length: float) -> float:
        """The edge that a request of this length stays within; inf beyond the last, and for NaN."""
        place = len(self.edges) if math.isnan(length) else bisect_left(self.edges, length)
        return self.edges[place] if place < len(self.edges) else math.inf

    def learn(self, length: float) -> None:
        """A new prediction."""


class EqualMassEdges(Edges):
    """Each bin gets the same share of the last `history` predictions; every prediction moves the edges."""

    def __init__(self, bins: int, history: int) -> None:
        super().__init__(bins, [])
        self.history = history
        self._past: deque[float] = deque()  # as they came
        self._ranked: list[float] = []  # the same, sorted
        self._places: list[int] = []  # of the edges among these

    def learn(self, length: float) -> None:
        if not math.isfinite(length):
            return
        past, ranked = self._past, self._ranked
        if len(past) == self.history:
            del ranked[bisect_left(ranked, past.popleft())]
        else:
            self._places = [-(-(len(past) + 1) * i // self.bins) - 1 for i in range(1, self.bins)]
        past.append(length)
        insort(ranked, length)
        self.edges = [ranked[place] for place in self._places]


def exponential_edges(bins: int, batch_size: int, mean: float) -> list[float]:
    """The best inner edges for exponential lengths of this mean (arXiv 2412.04504), in tokens.

    From the right, the widths of all bins but the last are mean * log L_1, mean * log L_2, ..., with
    L_1 = 1 + 1/2 + ... + 1/batch_size and L_m = 1 + log L_(m-1).
    """
    level = math.fsum(1 / n for n in range(1, batch_size + 1))
    widths = []
    for _ in range(bins - 1):
        widths.append(mean * math.log(level))
        level = 1 + math.log(level)
    return list(accumulate(reversed(widths)))


def make_edges(rule: str | Sequence[float], bins: int, batch_size: int, mean: float | None, history: int) -> Edges:
    """What `check_edges` has let pass."""
    if rule == "equal_mass":
        return EqualMassEdges(bins, history)
    if isinstance(rule, str):
        assert mean is not None, "the exponential rule has a mean"
        return Edges(bins, exponential_edges(bins, batch_size, mean))
    return Edges(bins, rule)


def check_edges(rule: str | Sequence[float], bins: int, mean: float | None, name: str) -> None:
    """Raise ValueError, naming the parameter of `name`, unless the rule can give edges for so many bins."""
    if isinstance(rule, str):
        if rule not in ("equal_mass", "exponential"):
            raise ValueError(f"{name}.edges: {rule!r} is neither equal_mass nor exponential nor a list of tokens")
        if rule == "exponential" and not (mean is not None and 0 < mean < math.inf):
            raise ValueError(f"{name}.mean: {mean}; edges=exponential needs the mean length in tokens, > 0")
    elif len(rule) not in (bins - 1, bins):
        raise ValueError(f"{name}.edges: {len(rule)} edges do not make bins={bins}; give {bins - 1} or {bins}")
    elif not all(low < high < math.inf for low, high in zip([0.0, *rule], rule, strict=False)):
        raise ValueError(f"{name}.edges: {list(rule)} is not a list of finite, increasing lengths > 0")
