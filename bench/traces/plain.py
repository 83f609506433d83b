"""Our own form: CSV, or JSON lines, with these names. `bench/traffic/save.py` writes it.

`weight` belongs to the tenant and is the same in all its rows. Without `output_tokens` a real model decides how long
its answers are, which takes a `prompt`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from backend.traffic import NONE
from bench.errors import BadInput
from bench.traces.cells import csv_cells, json_cells
from bench.traces.files import suffix
from bench.traces.kinds import MOST_TOKENS, Offset, Positive, Span, Text, Whole
from bench.traces.reading import Field, Loaded, read_cells, table

READERS = {".csv": csv_cells, ".jsonl": json_cells, ".json": json_cells}
FIELDS = (
    Field("arrival", "arrival_s", Offset()),
    Field("prompt_tokens", "prompt_tokens", Whole(1)),
    Field("output_tokens", "output_tokens", Whole(1)),
    Field("id", "id", Text(unique=True), optional=True),
    Field("tenant", "tenant", Text(), optional=True),
    Field("weight", "weight", Positive(), optional=True),
    Field("user", "user", Text(blank=True), optional=True),
    Field("max_tokens", "max_tokens", Whole(1, blank=True), optional=True),
    Field("priority", "priority", Whole(-MOST_TOKENS), optional=True),
    Field("slo", "slo", Text(), optional=True),
    Field("deadline", "deadline_s", Span(), optional=True),
    Field("cancel_after", "cancel_after_s", Span(), optional=True),
    Field("cancel_tokens", "cancel_tokens", Whole(1, blank=True), optional=True),
    Field("patience", "patience_s", Span(), optional=True),
    Field("prompt", "prompt", Text(), optional=True),
)


def read(path: Path, strict: bool, seed: int) -> Loaded:
    reader = READERS.get(suffix(path))
    if reader is None:
        raise BadInput(f"{path}: not {', '.join(READERS)} (or one of these with .gz)")
    cells = read_cells(path, FIELDS, reader)
    open_ended = "prompt" in cells.columns and "output_tokens" not in cells.columns
    fields = [f._replace(optional=True) if open_ended and f.column == "output_tokens" else f for f in FIELDS]
    loaded = table(cells, fields, strict)
    return replace(loaded, rows=loaded.rows.assign(output_tokens=NONE)) if open_ended else loaded
