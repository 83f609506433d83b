"""Back-pressure: those for whom the queue has no room wait outside, in order of coming."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Door:
    def __init__(self, room: Callable[[], int]) -> None:
        """`room`: how many more the queue can take."""
        self._room = room
        self._outside: deque[tuple[str, asyncio.Future[None]]] = deque()
        self._inside = 0  # called in, but not running yet, so that the queue does not show them

    async def enter(self, name: str) -> None:
        """Returns when there is room; the caller takes it before it awaits anything else."""
        if not self._outside and self._room() > self._inside:
            return
        turn = asyncio.get_running_loop().create_future()
        self._outside.append((name, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:  # it had been called in already
                self._inside -= 1
                self.open()
            raise
        self._inside -= 1

    def open(self) -> None:
        """Call in as many as there is room for."""
        while self._outside and self._room() > self._inside:
            _, turn = self._outside.popleft()
            if not turn.done():
                self._inside += 1
                turn.set_result(None)

    def turn_away(self, name: str, error: Exception) -> None:
        """Whoever of this name is outside gets the error; the others keep their turns."""
        for outside, turn in self._outside:
            if outside == name and not turn.done():
                turn.set_exception(error)

    def shut(self, error: Exception) -> None:
        """Everybody outside gets the error."""
        while self._outside:
            _, turn = self._outside.popleft()
            if not turn.done():
                turn.set_exception(error)
