"""``batchyard collect SOURCE ... -o FILE``: what finished runs tell of lengths, as rows to train on."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from bench.complaints import complain
from bench.errors import BadInput
from bench.tracking.store import USUAL


def main(arguments: Sequence[str]) -> int:
    """Exit code 0: there is a file, 2: a source is no finished run, or tells nothing."""
    parser = argparse.ArgumentParser(
        prog="batchyard collect",
        description="Turn finished runs into rows to train a length predictor on: a prompt and a length each.",
    )
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="folder of a run or a sweep, or an MLflow run id")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="to write: .jsonl or .jsonl.gz")
    parser.add_argument("--uri", default=USUAL, help="the store (MLFLOW_TRACKING_URI overrides it)")
    given = parser.parse_args(arguments)
    try:
        print(_collect(given.sources, Path(given.output), given.uri))
    except BadInput as error:
        return complain(error)
    return 0


def _collect(sources: Sequence[str], output: Path, uri: str) -> str:
    """What was done, in words."""
    from bench.learning.rows import check_name, rows_of, write_rows
    from bench.learning.runs import find_runs  # pandas takes a moment to import, and --help needs none

    check_name(output)
    runs = list(find_runs(sources, uri, Path.cwd()))
    rows, replayed = rows_of(runs)
    write_rows(rows, output)
    cut, silent = int(rows.capped.sum()), int(rows.text.isna().sum())
    notes = [f"{len(rows):,} rows from {len(runs)} runs: {output}"]
    notes += [f"{replayed:,} left out, which other runs of the same requests have too"] if replayed else []
    notes += [f"{cut:,} answers were cut: at least so long"] if cut else []
    notes += [f"{silent:,} without a prompt's text"] if silent else []
    return "; ".join(notes) + f"\nnext:  batchyard train data={output}"
