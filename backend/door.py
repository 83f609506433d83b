"""Back-pressure: those for whom the queue has no room wait outside, in order of coming."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Door:
    def __init__(self, room: Callable[[], int]) -> None:
        """`room`: how many more the queue can take."""
        self._room = room
        self._outside: deque[asyncio.Future[None]] = deque()
        self._inside = 0  # called in, but not running yet, so that the queue does not show them

    async def enter(self) -> None:
        """Returns when there is room; the caller takes it before it awaits anything else."""
        if not self._outside and self._room() > self._inside:
            return
        turn = asyncio.get_running_loop().create_future()
        self._outside.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it had been called in already
                self._inside -= 1
                self.open()
            raise
        self._inside -= 1

    def open(self) -> None:
        """Call in as many as there is room for."""
        while self._outside and self._room() > self._inside:
            turn = self._outside.popleft()
            if not turn.done():
                self._inside += 1
                turn.set_result(None)

    def shut(self, error: Exception) -> None:
        """Everybody outside gets the error."""
        while self._outside:
            turn = self._outside.popleft()
            if not turn.done():
                turn.set_exception(error)
