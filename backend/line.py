"""The line to a device in real time: batches go out from the event loop, a thread waits for what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from backend.api import Batch, Device, DeviceFailed, Output, Work
from backend.clock import Clock


class Line:
    def __init__(self, device: Device, clock: Clock, came: Callable[[], None]) -> None:
        """`came` is called on the event loop's thread when a batch is back."""
        self._device = device
        self._clock = clock
        self._came = came
        self._known: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self._waiter = ThreadPoolExecutor(1, thread_name_prefix="batchyard-wait")
        device.set_clock(clock)

    def open(self, work: Work) -> None:
        self._device.open(work)
        self._known.add(work.id)

    def close(self, request_id: str) -> None:
        """Of one that the device does not know, a no-op."""
        if request_id in self._known:
            self._known.remove(request_id)
            self._device.close(request_id)

    def dispatch(self, batch: Batch) -> asyncio.Future[Output]:
        """Raises DeviceFailed."""
        try:
            ticket = self._device.submit(batch, self._clock())
        except Exception as error:
            raise self._failed(error, batch.number) from error
        output = self._loop.run_in_executor(self._waiter, self._device.wait, ticket)
        output.add_done_callback(self._back)
        return output

    def result(self, output: asyncio.Future[Output], number: int) -> Output:
        """Of a batch that is back. Raises DeviceFailed."""
        try:
            result = output.result()
        except Exception as error:
            raise self._failed(error, number) from error
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
        self._waiter.shutdown(wait=False)

    def _back(self, output: asyncio.Future[Output]) -> None:
        if not output.cancelled():
            output.exception()  # seen; a commit raises it, unless there is none any more
        self._came()

    def _failed(self, why: Exception | str, number: int) -> DeviceFailed:
        if isinstance(why, DeviceFailed):
            return why
        said = why if isinstance(why, str) else f"{type(why).__name__}: {why}"
        return DeviceFailed(f"{self._device.capabilities.name}: batch {number}: {said}")
