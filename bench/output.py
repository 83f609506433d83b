"""The run folder: what a run leaves on disk. Each file is written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from backend.records import Records

SUMMARY, CONFIG, TIMING = "summary.json", "config.yaml", "timing.json"
ERROR = "error.txt"
"""The traceback of a job of a sweep that failed."""
TABLES = ("requests", "steps", "service", "backlog", "holds", "gaps")


def write_results(
    folder: Path, summary: Mapping[str, Any], records: Records, config: str, timing: Mapping[str, Any]
) -> None:
    """The tables as parquet, the summary last: a folder with a `summary.json` is complete.

    Raises ValueError for a NaN or an infinity in the summary: undefined is null.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        _write(folder / f"{name}.parquet", partial(getattr(records, name).to_parquet, index=False))
    _write(folder / CONFIG, lambda path: path.write_text(config, encoding="utf-8"))
    _write(folder / TIMING, lambda path: path.write_text(_json(timing), encoding="utf-8"))
    _write(folder / SUMMARY, lambda path: path.write_text(_json(summary), encoding="utf-8"))


def read_summary(folder: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    return summary


def read_timing(folder: Path) -> dict[str, float]:
    timing: dict[str, float] = json.loads((folder / TIMING).read_text(encoding="utf-8"))
    return timing


def _json(figures: Mapping[str, Any]) -> str:
    return json.dumps(figures, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _write(path: Path, write: Callable[[Path], object]) -> None:
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(half)
        os.replace(half, path)
    finally:
        half.unlink(missing_ok=True)
