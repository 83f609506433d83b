"""The line to a device in real time: batches go out from the event loop, a thread waits for what comes back.

The thread goes from one batch to the next without being told: under overlap a step wakes it once and the event loop
once, which matters where the device is the same processor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread

from backend.api import Batch, Device, DeviceFailed, Output, Ticket, Work
from backend.clock import Clock

Outcome = Output | BaseException


class Line:
    def __init__(self, device: Device, clock: Clock, came: Callable[[], None]) -> None:
        """`came` is called on the event loop's thread when a batch is back."""
        self._device = device
        self._clock = clock
        self._came = came
        self._known: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self._out: SimpleQueue[tuple[Ticket, asyncio.Future[Outcome]] | None] = SimpleQueue()
        device.set_clock(clock)
        # a device may hang: nobody waits for this thread at the end
        Thread(target=self._wait, name="batchyard-wait", daemon=True).start()

    def open(self, work: Work) -> None:
        self._device.open(work)
        self._known.add(work.id)

    def close(self, request_id: str) -> None:
        """Of one that the device does not know, a no-op."""
        if request_id in self._known:
            self._known.remove(request_id)
            self._device.close(request_id)

    def dispatch(self, batch: Batch) -> asyncio.Future[Outcome]:
        """Raises DeviceFailed."""
        try:
            ticket = self._device.submit(batch, self._clock())
        except Exception as error:
            raise self._failed(error, batch.number) from error
        output: asyncio.Future[Outcome] = self._loop.create_future()
        self._out.put((ticket, output))
        return output

    def result(self, output: asyncio.Future[Outcome], number: int) -> Output:
        """Of a batch that is back. Raises DeviceFailed."""
        result = output.result()
        if isinstance(result, BaseException):
            raise self._failed(result, number) from result
        if result.ended > self._clock():
            raise self._failed("it ends in the future; a device in virtual time is for simulations", number)
        if result.token_ids is None:
            raise self._failed("it has no token_ids, so there is nothing to stream", number)
        return result

    def close_all(self) -> None:
        for request_id in list(self._known):
            self.close(request_id)

    def hang_up(self) -> None:
        """Let the thread go when it has nothing to wait for."""
        self._out.put(None)

    def _wait(self) -> None:
        """The thread's."""
        with suppress(RuntimeError):  # the loop is closed: nobody asks any more
            while (waited := self._out.get()) is not None:
                ticket, output = waited
                try:
                    outcome: Outcome = self._device.wait(ticket)
                except BaseException as error:
                    outcome = error
                self._loop.call_soon_threadsafe(self._back, output, outcome)

    def _back(self, output: asyncio.Future[Outcome], outcome: Outcome) -> None:
        if not output.cancelled():
            output.set_result(outcome)
        self._came()

    def _failed(self, why: BaseException | str, number: int) -> DeviceFailed:
        if isinstance(why, DeviceFailed):
            return why
        said = why if isinstance(why, str) else f"{type(why).__name__}: {why}"
        return DeviceFailed(f"{self._device.capabilities.name}: batch {number}: {said}")
