"""What stops a process from outside becomes an exception, so that every run is closed on the way out."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

Handlers = dict[signal.Signals, Any]

STOPPING = (signal.SIGTERM, signal.SIGHUP)  # Ctrl-C is KeyboardInterrupt already


class Stopped(SystemExit):
    """SIGTERM or SIGHUP arrived; leaves the process with the shell's code for it."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.signal = signal.Signals(number)

    def __str__(self) -> str:
        return f"stopped by {self.signal.name}"


def killed(error: BaseException) -> bool:
    """True if somebody stopped the run, False if it broke."""
    return isinstance(error, KeyboardInterrupt | Stopped)


def catch_stops() -> None:
    """From now on SIGTERM and SIGHUP raise Stopped; signals that are ignored (nohup) stay ignored."""
    _set(_stops())


@contextmanager
def stoppable() -> Iterator[None]:
    """`catch_stops` for the length of the block."""
    with _handlers(_stops()):
        yield


@contextmanager
def shielded() -> Iterator[None]:
    """Within the block a second Ctrl-C or SIGTERM does nothing: closing a run takes a fraction of a second."""
    with _handlers(dict.fromkeys((signal.SIGINT, *STOPPING), signal.SIG_IGN)):
        yield


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise Stopped(number)


def _stops() -> Handlers:
    return {number: _stop for number in STOPPING if signal.getsignal(number) is not signal.SIG_IGN}


@contextmanager
def _handlers(wanted: Handlers) -> Iterator[None]:
    before = _set(wanted)
    try:
        yield
    finally:
        _set(before)


def _set(wanted: Handlers) -> Handlers:
    """Install handlers and give those that were there; only the main thread gets signals."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.signal(number, handler) for number, handler in wanted.items()}
