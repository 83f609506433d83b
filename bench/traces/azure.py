"""Azure's LLM inference traces of 2023 and 2024 (Azure/AzurePublicDataset, CC-BY-4.0; Splitwise, ISCA'24)."""

from __future__ import annotations

from pathlib import Path

from bench.traces.cells import csv_cells
from bench.traces.clock import Clock
from bench.traces.kinds import Whole
from bench.traces.reading import Field, Loaded, read_cells, table

FIELDS = (
    Field("arrival", "TIMESTAMP", Clock()),
    Field("prompt_tokens", "ContextTokens", Whole(1)),
    Field("output_tokens", "GeneratedTokens", Whole(1)),
)


def read(path: Path, strict: bool, seed: int) -> Loaded:
    return table(read_cells(path, FIELDS, csv_cells), FIELDS, strict)
