"""The queue, in order of arrival."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge

from backend.request import Request


class WaitingQueue:
    """Arrivals join at the end; a preempted one goes back to its place by submission number. O(1) to join and leave."""

    __slots__ = ("_arrived", "_returned", "size")

    def __init__(self) -> None:
        self._arrived: dict[int, Request] = {}
        self._returned: dict[int, Request] = {}
        self.size = 0

    def __iter__(self) -> Iterator[Request]:
        if not self._returned:
            return iter(self._arrived.values())
        back = sorted(self._returned.values(), key=_number)
        return merge(self._arrived.values(), back, key=_number)

    def join(self, request: Request) -> None:
        self._arrived[request.number] = request
        self.size += 1

    def rejoin(self, request: Request) -> None:
        self._returned[request.number] = request
        self.size += 1

    def leave(self, request: Request) -> None:
        if self._arrived.pop(request.number, None) is None:
            del self._returned[request.number]
        self.size -= 1

    def oldest(self) -> Request | None:
        return next(iter(self), None)


def _number(request: Request) -> int:
    return request.number
