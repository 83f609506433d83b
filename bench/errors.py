"""What a person can put right is told in one line, without a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class BadInput(ValueError):
    """A setting, a file or a plugin that cannot work; the message names it, the place and the remedy."""


@contextmanager
def named(key: str) -> Iterator[None]:
    """What a part says of its settings and files, with the key that the user knows them by in front."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise BadInput(str(error) if str(error).startswith(key) else f"{key}: {error}") from error


def first_line(error: BaseException) -> str:
    """Of what a library says: the rest is for its developers."""
    return str(error).partition("\n")[0]
