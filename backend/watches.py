"""Who reaches a number of output tokens in which batch: outrun predictions, and clients that leave after k tokens."""

from __future__ import annotations

import math
from heapq import heappop, heappush

from backend.request import Phase, Request

OUTRAN = "outran"
REACHED = "reached"


class Watches:
    """A lazy heap: entries of ended spells are dropped when they come up."""

    __slots__ = ("_heap", "_outruns", "_wanted")

    def __init__(self, outruns: bool) -> None:
        self._heap: list[tuple[int, int, int, str, Request]] = []  # batch, number, epoch, kind, request
        self._wanted: dict[Request, int] = {}
        self._outruns = outruns

    def want(self, request: Request, tokens: int) -> None:
        """Report `request` when its output reaches `tokens`. Call before it is admitted."""
        self._wanted[request] = tokens

    def wanted(self, request: Request) -> int | None:
        return self._wanted.get(request)

    def forget(self, request: Request) -> None:
        self._wanted.pop(request, None)

    def start(self, request: Request) -> None:
        """A spell of decoding begins: its anchor is known."""
        if self._wanted and request in self._wanted:
            self._push(request, self._wanted[request], REACHED)
        if self._outruns:
            self.predicted(request)

    def predicted(self, request: Request) -> None:
        """`request.prediction` is new while it decodes."""
        prediction = request.prediction
        if self._outruns and request.anchor and prediction is not None and prediction.expected < request.max_tokens - 1:
            self._push(request, math.floor(prediction.expected) + 1, OUTRAN)

    def next_batch(self) -> int | None:
        heap = self._heap
        while heap and not _current(heap[0][2], heap[0][4]):
            heappop(heap)
        return heap[0][0] if heap else None

    def due(self, batch: int) -> tuple[list[Request], list[Request]] | None:
        """By the commit of `batch`: those who outran their prediction, those who have as much as wanted; or nobody."""
        heap = self._heap
        if not heap or heap[0][0] > batch:
            return None
        outran: list[Request] = []
        reached: list[Request] = []
        while heap and heap[0][0] <= batch:
            _, _, epoch, kind, request = heappop(heap)
            if _current(epoch, request):
                (outran if kind == OUTRAN else reached).append(request)
        return outran, reached

    def _push(self, request: Request, tokens: int, kind: str) -> None:
        batch = request.anchor + max(0, tokens - request.base - 1)
        heappush(self._heap, (batch, request.number, request.epoch, kind, request))


def _current(epoch: int, request: Request) -> bool:
    return epoch == request.epoch and Phase.DECODE <= request.phase <= Phase.ENDING
