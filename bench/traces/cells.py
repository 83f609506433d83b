"""CSV and JSON lines as columns of text, with the line of every row at hand for messages.

Numbers stay text until somebody says what they are: a float would lose picoseconds.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv

from bench.errors import BadInput
from bench.traces.files import open_text


class Fault(NamedTuple):
    line: int
    reason: str


@dataclass(frozen=True)
class Cells:
    path: Path
    columns: dict[str, pa.Array]  # of those asked for, the ones that are there; "" where a cell is not given
    found: list[str]  # all names in the file
    lines: Callable[[], npt.NDArray[np.int64]]  # (rows,) the line on which each row begins
    misshapen: list[Fault]  # rows that are not in the columns


def csv_cells(path: Path, wanted: Collection[str]) -> Cells:
    """The fast reader for a good file; whatever it stumbles over is left to the careful one."""
    header = _header(path)
    found = [name.strip() for name in header]
    doubled = {name for name in wanted if found.count(name) > 1}
    if doubled:
        raise BadInput(f"{path}:1: column {', '.join(sorted(doubled))} twice")
    chosen = {name: header[found.index(name)] for name in wanted if name in found}
    try:
        with pa.input_stream(str(path), compression="detect") as stream:
            table = pa_csv.read_csv(
                stream,
                pa_csv.ReadOptions(use_threads=False, block_size=1 << 24),
                pa_csv.ParseOptions(newlines_in_values=True),
                pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(header, pa.string()),
                    include_columns=list(chosen.values()),
                    strings_can_be_null=False,
                ),
            )
    except pa.ArrowInvalid:
        return _careful_csv(path, found, list(chosen))
    columns = {name: table[raw].combine_chunks() for name, raw in chosen.items()}
    return Cells(path, columns, found, lambda: np.array([line for line, _ in _records(path)], np.int64), [])


def _header(path: Path) -> list[str]:
    with open_text(path) as file:
        return next(csv.reader(file), [])


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line and cells of each record after the header, blank lines left out."""
    with open_text(path) as file:
        reader = csv.reader(file)
        next(reader)
        line = reader.line_num + 1
        for record in reader:
            if record:
                yield line, record
            line = reader.line_num + 1


def _careful_csv(path: Path, found: list[str], chosen: list[str]) -> Cells:
    misshapen, lines = [], []
    columns: dict[str, list[str]] = {name: [] for name in chosen}
    at = [(found.index(name), column) for name, column in columns.items()]
    for line, record in _records(path):
        if len(record) != len(found):
            misshapen.append(Fault(line, f"{len(record)} cells where the header has {len(found)}"))
            continue
        lines.append(line)
        for index, column in at:
            column.append(record[index])
    arrays = {name: pa.array(column, pa.string()) for name, column in columns.items()}
    return Cells(path, arrays, found, lambda: np.array(lines, np.int64), misshapen)


def json_cells(path: Path, wanted: Collection[str]) -> Cells:
    """One object a line; names may differ by row, and what a row lacks is not given."""
    decode = json.JSONDecoder(parse_float=str).raw_decode
    misshapen, lines = [], []
    columns: dict[str, list[Any]] = {name: [] for name in wanted}
    found: dict[str, None] = {}
    with open_text(path) as file:
        for line, text in enumerate(file, 1):
            text = text.strip()
            if not text:
                continue
            try:
                row, end = decode(text)
            except ValueError:
                row, end = None, 0
            if end != len(text) or type(row) is not dict:
                misshapen.append(Fault(line, "not a JSON object"))
                continue
            if len(found) < len(row):
                found.update(dict.fromkeys(row))
            lines.append(line)
            for name, column in columns.items():
                column.append(row.get(name))
    arrays = {name: _texts(column) for name, column in columns.items() if name in found or any(column)}
    return Cells(path, arrays, list(found), lambda: np.array(lines, np.int64), misshapen)


def _texts(values: list[Any]) -> pa.Array:
    try:
        array = pa.array(values)
        if pa.types.is_boolean(array.type):
            raise pa.ArrowInvalid("not a number")
        return array.cast(pa.string()).fill_null("")
    except (pa.ArrowException, TypeError, OverflowError):  # of several types
        return pa.array(["" if value is None else str(value) for value in values], pa.string())
