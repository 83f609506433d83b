"""The chat arena's 27 tenants of the VTC paper (Ying1123/VTC-artifact, Apache-2.0): vidur's columns and a tenant."""

from __future__ import annotations

from pathlib import Path

from bench.traces import vidur
from bench.traces.cells import csv_cells
from bench.traces.kinds import Text
from bench.traces.reading import Field, Loaded, read_cells, table

FIELDS = (*vidur.FIELDS, Field("tenant", "tenant", Text()))


def read(path: Path, strict: bool, seed: int) -> Loaded:
    return table(read_cells(path, FIELDS, csv_cells), FIELDS, strict)
