"""From text columns to a table of requests: strict, or lenient with a count of what was wrong."""

from __future__ import annotations

import csv
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.errors import BadInput
from bench.traces.cells import Cells, Fault
from bench.traces.files import check_file
from bench.traces.kinds import Kind

Notes = dict[str, int | str]


class Field(NamedTuple):
    column: str  # of the table
    name: str  # in the file
    kind: Kind
    optional: bool = False  # the file may lack it altogether


@dataclass(frozen=True)
class Loaded:
    """What a trace file comes down to.

    `rows` is in order of time: arrival (picoseconds since the first row), prompt_tokens and output_tokens, and where
    the file has them tenant, user (""/not given), id, prompt (text) and further columns of a Traffic (NONE: not given).
    `notes` says what became of the file's rows: rows = the length of `rows` + what was left out, by reason.
    """

    rows: pd.DataFrame
    notes: Notes = field(default_factory=dict)


def read_cells(path: Path, fields: Sequence[Field], reader: Callable[[Path, Collection[str]], Cells]) -> Cells:
    """The cells of a file; BadInput where it is missing, not text, or not of this form at all."""
    check_file(path)
    try:
        return reader(path, [field.name for field in fields])
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise BadInput(f"{path}: cannot be read: {error}") from error


def table(cells: Cells, fields: Sequence[Field], strict: bool) -> Loaded:
    """Rows of values. Strict: the first thing wrong is raised with file and line; else bad rows are left out."""
    _check_columns(cells, fields)
    present = [field for field in fields if field.name in cells.columns]
    parsed = [field.kind.read(cells.columns[field.name]) for field in present]
    bad = np.column_stack([column.bad for column in parsed])
    wrong = bad.any(axis=1)
    if strict and (cells.misshapen or wrong.any()):
        raise BadInput(_first(cells, present, bad))
    rows = pd.DataFrame({f.column: column.values[~wrong] for f, column in zip(present, parsed, strict=True)})
    reasons = Counter(fault.reason for fault in cells.misshapen)
    reasons.update(f"{name}: {why}" for name, _, why in _explained(cells, present, bad))
    skipped = {"skipped": reasons.total()} | {f"skipped: {why}": n for why, n in sorted(reasons.items())}
    if not len(rows):
        raise BadInput(f"{cells.path}: no rows" + "".join(f"; {note} {n}" for note, n in skipped.items() if n))
    return Loaded(in_order(rows), {"rows": len(rows) + reasons.total(), **skipped})


def in_order(rows: pd.DataFrame) -> pd.DataFrame:
    """By arrival, counted from the first; rows of one time stay as they are in the file."""
    if not rows["arrival"].is_monotonic_increasing:
        rows = rows.sort_values("arrival", kind="stable", ignore_index=True)
    return rows.assign(arrival=rows["arrival"] - rows["arrival"].iloc[0])


def _check_columns(cells: Cells, fields: Sequence[Field]) -> None:
    missing = [field.name for field in fields if not field.optional and field.name not in cells.columns]
    if not missing:
        return
    if cells.misshapen and not cells.found:
        raise BadInput(f"{cells.path}:{cells.misshapen[0].line}: {cells.misshapen[0].reason}")
    expected = ", ".join(field.name + ("?" if field.optional else "") for field in fields)
    found = ", ".join(name[:40] for name in cells.found[:20])
    raise BadInput(f"{cells.path}: no column {', '.join(missing)}; found: {found}; expected: {expected}")


def _explained(cells: Cells, fields: list[Field], bad: npt.NDArray[np.bool_]) -> list[tuple[str, str, str]]:
    """Name, text and reason of the first bad cell of each bad row."""
    rows = np.flatnonzero(bad.any(axis=1))
    firsts = [fields[at] for at in bad[rows].argmax(axis=1)]
    texts = [cells.columns[f.name][int(row)].as_py() for f, row in zip(firsts, rows, strict=True)]
    return [(f.name, text, f.kind.explain(text)) for f, text in zip(firsts, texts, strict=True)]


def _first(cells: Cells, fields: list[Field], bad: npt.NDArray[np.bool_]) -> str:
    faults = cells.misshapen[:1]
    wrong = bad.any(axis=1)
    if wrong.any():
        row = int(wrong.argmax())
        name, text, why = _explained(cells, fields, bad & (np.arange(len(bad)) == row)[:, None])[0]
        shown = text if len(text) <= 40 else f"{text[:40]}…"
        faults = [*faults, Fault(int(cells.lines()[row]), f'{name} is "{shown}": {why}')]
    first = min(faults)
    return f"{cells.path}:{first.line}: {first.reason} (workload.strict=false skips such rows)"
