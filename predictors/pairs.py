"""Training rows: what was known of a request at arrival, and how long its answer became.

Rows are a DataFrame with the columns of COLUMNS, from prompt/length pairs or from the records of finished runs.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from predictors.api import PredictionInput

COLUMNS = {
    "text": object,  # the prompt; None where it is not known
    "prompt_tokens": np.int64,
    "tenant": object,  # in pairs: the model that answered
    "arrival": np.int64,  # picoseconds since the run began; 0 where it is not known
    "max_tokens": np.int64,
    "source": object,  # of the row, to select by; not a feature
    "length": np.int64,  # output tokens, >= 1; an empty answer still has its EOS
    "capped": bool,  # the answer was cut: it would have had at least `length`
}
NO_LIMIT = 10**6
"""`max_tokens` of a row without a limit of its own."""
MOST_TOKENS = 10**9
SECOND, MOST_SECONDS = 10**12, 9_000_000
TOKENS_PER_CHARACTER = 0.25
LENGTHS = ("length", "output_tokens", "response_tokens_est")
PROMPT_TOKENS = ("prompt_tokens", "prompt_tokens_est")
CUT = ("length", "cancelled")
"""Why an answer ended before its own end."""


class BadRows(ValueError):
    """Rows that cannot be trained on; the message names the file and line, or the column."""


def read_pairs(path: str | Path, caps: Mapping[str, int] | None = None) -> pd.DataFrame:
    """Rows of a JSONL file, gzipped or not: `prompt` and a length (LENGTHS), and what else is given.

    Beside those of the pairs there are `tenant` (else the model), `arrival_s`, and `capped` (else an answer of its
    limit's length is); a row with `prompt_tokens` need not have a prompt. `caps`: by model, the length from which an
    answer counts as cut. Raises BadRows, naming file and line.
    """
    path = Path(path)
    caps = caps or {}
    return frame([_row(pair, f"{path}:{line}", path.name, caps) for line, pair in _objects(path)])


def rows_of_run(requests: pd.DataFrame, texts: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Rows of the requests that a run made tokens for; cut ones (by the limit, or a cancel) are `capped`.

    `requests` as a run records them (requests.parquet); `texts` by request id. Requests that were rejected or failed
    tell no length and are left out. Raises BadRows naming a missing column.
    """
    needed = ["id", "tenant", "prompt_tokens", "max_tokens", "arrival", "state", "output_tokens", "finish_reason"]
    if missing := [name for name in needed if name not in requests.columns]:
        raise BadRows(f"not the requests of a run: no column {', '.join(missing)}; found {', '.join(requests.columns)}")
    kept = requests[requests.state.isin(("completed", "cancelled")) & (requests.output_tokens >= 1)]
    cut = (kept.state == "cancelled") | (kept.finish_reason == "length")
    given = texts or {}
    return frame(
        {
            "text": [given.get(id) for id in kept.id],
            "prompt_tokens": kept.prompt_tokens,
            "tenant": kept.tenant,
            "arrival": kept.arrival,
            "max_tokens": kept.max_tokens,
            "source": "run",
            "length": kept.output_tokens,
            "capped": cut,
        }
    )


def frame(rows: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> pd.DataFrame:
    """Rows with the columns and types of COLUMNS, numbered from 0."""
    table = pd.DataFrame(rows, columns=list(COLUMNS)).reset_index(drop=True)
    table = table.astype({name: kind for name, kind in COLUMNS.items() if kind is not object})
    for name in ("text", "tenant", "source"):  # not pandas' own strings: a text may be None
        table[name] = pd.Series([None if pd.isna(v) else str(v) for v in table[name]], dtype=object)
    return table


def inputs_of(rows: pd.DataFrame) -> list[PredictionInput]:
    """What a predictor would have been asked about each row; never its length."""
    columns = zip(rows.text, rows.prompt_tokens, rows.tenant, rows.arrival, rows.max_tokens, strict=True)
    return [
        PredictionInput(str(number), text, int(tokens), tenant, int(arrival), int(limit))
        for number, (text, tokens, tenant, arrival, limit) in enumerate(columns)
    ]


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in _lines(path):
        try:
            pair = json.loads(line)
        except json.JSONDecodeError as error:
            raise BadRows(f"{path}:{number}: not JSON: {error}") from None
        if not isinstance(pair, dict):
            raise BadRows(f"{path}:{number}: not an object with a prompt and a length")
        yield number, pair


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    opener = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opener(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield number, line
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise BadRows(f"{path}:{number + 1}: cannot be read: {error}") from None


def _row(pair: Mapping[str, Any], place: str, source: str, caps: Mapping[str, int]) -> dict[str, Any]:
    text, tokens = pair.get("prompt"), _count(pair, PROMPT_TOKENS, place)
    if not isinstance(text, str) and (text is not None or tokens is None):
        raise BadRows(f"{place}: no prompt; found {', '.join(pair)}")
    length = _count(pair, LENGTHS, place)
    if length is None:
        raise BadRows(f"{place}: no length; found {', '.join(pair)}, expected one of {', '.join(LENGTHS)}")
    model = str(pair.get("model", "default"))
    limit = _count(pair, ("max_tokens", "max_new_tokens"), place) or NO_LIMIT
    return {
        "text": text,
        "prompt_tokens": round(len(text or "") * TOKENS_PER_CHARACTER) if tokens is None else tokens,
        "tenant": str(pair.get("tenant", model)),
        "arrival": _arrival(pair, place),
        "max_tokens": max(limit, length),  # counted by another tokenizer, an answer may be longer than its limit
        "source": str(pair.get("source", source)),
        "length": max(1, length),
        "capped": pair.get("capped") is True or length >= min(limit, caps.get(model, NO_LIMIT)),
    }


def _arrival(pair: Mapping[str, Any], place: str) -> int:
    seconds = pair.get("arrival_s", 0)
    if not isinstance(seconds, int | float) or not 0 <= seconds < MOST_SECONDS:
        raise BadRows(f"{place}: arrival_s is {seconds!r}, not a time in seconds")
    return round(seconds * SECOND)


def _count(pair: Mapping[str, Any], names: Sequence[str], place: str) -> int | None:
    for name in names:
        value = pair.get(name)
        if value is None or value != value:
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value < MOST_TOKENS or value % 1:
            raise BadRows(f"{place}: {name} is {value!r}, not a count of tokens")
        return int(value)
    return None
