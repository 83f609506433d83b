"""BurstGPT (HPMLL/BurstGPT, CC-BY-4.0): six columns, or eight with session and elapsed time.

Tenants are the models, users the sessions. A row with 0 tokens on either side is a request that failed: it is left out
and counted as `failed_in_trace`, strict or not.
"""

from __future__ import annotations

from pathlib import Path

from bench.errors import BadInput
from bench.traces.cells import csv_cells
from bench.traces.kinds import Offset, Text, Whole
from bench.traces.reading import Field, Loaded, in_order, read_cells, table

FIELDS = (
    Field("arrival", "Timestamp", Offset()),
    Field("tenant", "Model", Text()),
    Field("prompt_tokens", "Request tokens", Whole(0)),
    Field("output_tokens", "Response tokens", Whole(0)),
    Field("user", "Session ID", Text(blank=True), optional=True),
)


def read(path: Path, strict: bool, seed: int) -> Loaded:
    loaded = table(read_cells(path, FIELDS, csv_cells), FIELDS, strict)
    failed = (loaded.rows["prompt_tokens"] == 0) | (loaded.rows["output_tokens"] == 0)
    if failed.all():
        raise BadInput(f"{path}: all {len(failed)} requests failed (0 tokens)")
    rows = in_order(loaded.rows[~failed].reset_index(drop=True))
    return Loaded(rows, {**loaded.notes, "failed_in_trace": int(failed.sum())})
