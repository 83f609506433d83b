"""What a client holds of its request: the tokens as they come, and how it ended."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from backend.api import TextDecoder
from policies.api import Time


class Cancelled(Exception):
    """The request was cancelled by somebody else than its reader."""


class EngineFailed(Exception):
    """The engine cannot go on; the device's or the policy's own error is the cause."""


@dataclass(frozen=True, slots=True)
class Piece:
    token: int
    text: str = ""
    """The text that this token completes; pieces join to the whole text. Empty where there is no tokenizer."""
    finish_reason: str = ""
    """Of the last piece: stop | length."""


class Stream:
    """An async iterator of the request's pieces, in order, for one reader.

    What is not read is kept, so that a slow reader holds nobody up: at most `max_tokens` ids. Text is decoded when it
    is read. A stream that ends without an exception belongs to a completed request; else the next piece raises
    Cancelled, Refused (the policy rejected it) or EngineFailed, once what came before has been read.
    """

    def __init__(self, request_id: str, decoder: TextDecoder | None, leave: Callable[[Stream], None]) -> None:
        self.id = request_id
        self.state = ""
        """Once ended: completed | cancelled | rejected | failed."""
        self.finish_reason = ""
        self.ended_at: Time = -1
        self.made = 0
        """Tokens handed over, read or not."""
        self._leave = leave
        self._decoder = decoder
        self._unread: deque[int] = deque()
        self._error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._wanted = 0

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Piece:
        if not self._unread:
            await self._until(self.made + 1)
        if self._unread:
            return self._piece(self._unread.popleft())
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        raise StopAsyncIteration

    def cancel(self) -> None:
        """Leave: the request ends now, unless it has ended."""
        self._leave(self)

    async def reach(self, tokens: int) -> None:
        """Wait, without reading, until `tokens` have been handed over or the request has ended.

        Raises EngineFailed.
        """
        await self._until(tokens)
        if isinstance(self._error, EngineFailed):
            raise self._error

    def push(self, token: int) -> None:
        """The driver's: a token has been committed."""
        self._unread.append(token)
        self.made += 1
        if self.made >= self._wanted:
            self._wake()

    def end(self, state: str, finish_reason: str, now: Time, error: Exception | None = None) -> None:
        """The driver's: the terminal state, once."""
        self.state, self.finish_reason, self.ended_at, self._error = state, finish_reason, now, error
        self._wake()

    def _piece(self, token: int) -> Piece:
        last = self.state == "completed" and not self._unread
        text = "" if self._decoder is None else self._decoder.push(token)
        if last and self._decoder is not None:
            text += self._decoder.flush()
        return Piece(token, text, self.finish_reason if last else "")

    async def _until(self, tokens: int) -> None:
        while self.made < tokens and not self.state:
            if self._reader is not None:
                raise RuntimeError(f"request {self.id}: its stream is being read already; it has one reader")
            self._wanted = tokens
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
