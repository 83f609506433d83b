"""Where what is built or converted once is kept."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(part: str) -> Path:
    """``$BATCHYARD_CACHE/part``, else ``$XDG_CACHE_HOME/batchyard/part``, else ``~/.cache/batchyard/part``; made."""
    own = os.environ.get("BATCHYARD_CACHE")
    folder = Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "batchyard"
    folder = folder / part
    folder.mkdir(parents=True, exist_ok=True)
    return folder
