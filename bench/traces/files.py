"""Open a trace file, or say in one line why not."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from bench.errors import BadInput

LFS_POINTER = b"version https://git-lfs.github.com/spec/"


def check_file(path: Path) -> None:
    """Raise BadInput unless `path` is a file with data in it."""
    if not path.is_file():
        raise BadInput(f"{path}: no such file" if not path.exists() else f"{path}: not a file")
    with path.open("rb") as file:
        start = file.read(len(LFS_POINTER))
    if start == LFS_POINTER:
        raise BadInput(f"{path}: a Git LFS pointer, not the data; fetch it with `git lfs pull` where it was cloned")
    if not start.strip():
        raise BadInput(f"{path}: empty")


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """UTF-8 with or without a byte order mark, gzip by suffix; line ends as they are."""
    with (
        gzip.open(path, "rt", encoding="utf-8-sig", newline="")
        if path.suffix == ".gz"
        else path.open(encoding="utf-8-sig", newline="")
    ) as file:
        yield file


def suffix(path: Path) -> str:
    """The suffix under a `.gz`."""
    return Path(path.stem).suffix if path.suffix == ".gz" else path.suffix


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
