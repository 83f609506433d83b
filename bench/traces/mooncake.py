"""Mooncake's traces (kvcache-ai/Mooncake, Apache-2.0): JSON lines, milliseconds; prefix hashes are not used."""

from __future__ import annotations

from pathlib import Path

from bench.traces.cells import json_cells
from bench.traces.kinds import Offset, Whole
from bench.traces.reading import Field, Loaded, read_cells, table

FIELDS = (
    Field("arrival", "timestamp", Offset(places=9)),
    Field("prompt_tokens", "input_length", Whole(1)),
    Field("output_tokens", "output_length", Whole(1)),
)


def read(path: Path, strict: bool, seed: int) -> Loaded:
    return table(read_cells(path, FIELDS, json_cells), FIELDS, strict)
