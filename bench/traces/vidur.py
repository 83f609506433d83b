"""The CSV of the vidur simulator (microsoft/vidur, MIT); times in seconds."""

from __future__ import annotations

from pathlib import Path

from bench.traces.cells import csv_cells
from bench.traces.kinds import Offset, Whole
from bench.traces.reading import Field, Loaded, read_cells, table

FIELDS = (
    Field("arrival", "arrived_at", Offset()),
    Field("prompt_tokens", "num_prefill_tokens", Whole(1)),
    Field("output_tokens", "num_decode_tokens", Whole(1)),
)


def read(path: Path, strict: bool, seed: int) -> Loaded:
    return table(read_cells(path, FIELDS, csv_cells), FIELDS, strict)
