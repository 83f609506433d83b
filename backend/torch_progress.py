"""The bars that transformers draws while it downloads, converts and loads: for a person, not for a log."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging


@contextmanager
def bars_for_a_person() -> Iterator[None]:
    """They are drawn only if stderr is a terminal."""
    quiet = logging.is_progress_bar_enabled() and not sys.stderr.isatty()
    if quiet:
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if quiet:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
