"""Rows to train on: from finished runs, to a file, and to what tells one set of rows from another."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from bench.errors import BadInput
from bench.learning.runs import FinishedRun
from predictors.pairs import SECOND, BadRows, rows_of_run

WRITTEN = ["source", "model", "tenant", "arrival_s", "prompt", "prompt_tokens", "max_tokens", "output_tokens", "capped"]
DIGEST = 16  # hexadecimal digits


def rows_of(runs: Sequence[FinishedRun]) -> tuple[pd.DataFrame, int]:
    """Rows as predictors.pairs has them and the `model` of each; and how many were left out.

    The same requests served again, under another policy say, tell nothing new: rows that are alike in all but their
    run stay once. Raises BadInput if no row is left.
    """
    rows = pd.concat([_rows(run) for run in runs], ignore_index=True)
    told = [name for name in rows.columns if name != "source"]
    twin = rows.groupby(["source", *told], dropna=False).cumcount()  # of one run's own, all count
    again = rows.assign(twin=twin).duplicated([*told, "twin"])
    fresh = rows[~again].reset_index(drop=True)
    if not len(fresh):
        raise BadInput(
            f"{', '.join(run.name for run in runs)}: no request made a token: there is nothing to learn from"
        )
    return fresh, len(rows) - len(fresh)


def _rows(run: FinishedRun) -> pd.DataFrame:
    requests = run.requests
    texts = dict(zip(requests["id"], requests["prompt"], strict=True)) if "prompt" in requests else None
    try:
        return rows_of_run(requests, texts).assign(source=run.name, model=run.model)
    except BadRows as error:
        raise BadInput(f"{run.name}: {error}") from error


def check_name(path: Path) -> None:
    if not path.name.endswith((".jsonl", ".jsonl.gz")):
        raise BadInput(f"--output {path}: expected a name that ends in .jsonl or .jsonl.gz")


def write_rows(rows: pd.DataFrame, path: Path) -> None:
    """JSON lines that `predictors.pairs.read_pairs` reads, gzipped if the name says so; whole or not at all."""
    text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in _lines(rows))
    data = text.encode(errors="replace")
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
        os.replace(draft, path)
    except OSError as error:
        raise BadInput(f"--output {path}: {error}") from error
    finally:
        draft.unlink(missing_ok=True)


def _lines(rows: pd.DataFrame) -> Iterator[dict[Any, Any]]:
    named = rows.assign(arrival_s=rows["arrival"] / SECOND).rename(
        columns={"text": "prompt", "length": "output_tokens"}
    )
    yield from named[WRITTEN].to_dict("records")


def digest_of(rows: pd.DataFrame) -> str:
    """Equal for equal rows in the same order, whatever file they came from."""
    hashed = pd.util.hash_pandas_object(rows.drop(columns="source"), index=False)
    return hashlib.sha256(hashed.to_numpy().tobytes()).hexdigest()[:DIGEST]
