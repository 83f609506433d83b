"""Records written by hand: times in milliseconds, everything not said at a plain default."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
import pytest

from backend.records import (
    BACKLOG_COLUMNS,
    GAP_COLUMNS,
    HOLD_COLUMNS,
    REQUEST_COLUMNS,
    SERVICE_COLUMNS,
    STEP_COLUMNS,
    STEP_FLOATS,
    Records,
)

MS = 10**9
TIMES = {
    *("arrival", "submitted", "scheduled", "first_token", "last_token", "ended", "preempted_wait", "longest_gap"),
    *("cancel_called", "last_made", "freed", "planned", "started", "committed", "busy", "host", "exposed"),
    *("kv_time", "fragmentation_time", "gap_time", "since", "until", "gap", "deadline"),
}
MOMENTS = ("scheduled", "first_token", "last_token", "ended", "longest_gap", "cancel_called", "last_made", "freed")
NAMES = {"tenant": "a", "user": "u", "slo": "default", "state": "completed", "finish_reason": "stop", "detail": ""}

Rows = Sequence[Mapping[str, Any]]


def picoseconds(row: Mapping[str, Any]) -> dict[str, Any]:
    return {k: round(v * MS) if k in TIMES and v != -1 else v for k, v in row.items()}


def request_row(i: int, row: Mapping[str, Any]) -> dict[str, Any]:
    plain = dict.fromkeys(REQUEST_COLUMNS, 0) | dict.fromkeys(MOMENTS, -1) | NAMES
    plain |= {"number": i, "row": i, "id": str(i), "weight": 1.0, "priority": 0, "deadline": -1, "max_tokens": 100}
    tokens = row.get("output_tokens", 0)
    return plain | {"prompt_tokens": 4, "made_tokens": tokens, "true_output_tokens": tokens} | picoseconds(row)


def step_rows(rows: Rows) -> list[dict[str, Any]]:
    done, number, out = 0, 1, []
    for row in rows:
        plain = (
            dict.fromkeys(STEP_COLUMNS, 0) | dict.fromkeys(STEP_FLOATS, 0.0) | {"steps": 1, "planned": row["started"]}
        )
        plain |= {"busy": row["ended"] - row["started"], "committed": row["ended"], "first_step": number}
        full = picoseconds(plain | dict(row))
        full.setdefault("gap_time", 0)
        full["gap_time"] = full["gap_time"] or full["committed"] - done
        out.append(full)
        done, number = full["committed"], number + full["steps"]
    return out


def frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    return pd.DataFrame(rows) if rows else pd.DataFrame({c: pd.Series(dtype="int64") for c in columns})


def records_by_hand(
    requests: Rows,
    steps: Rows = (),
    *,
    service: Sequence[tuple[int, int, int, int, int]] = (),
    backlog: Sequence[tuple[int, float, float]] = (),
    holds: Sequence[tuple[float, float]] = (),
    gaps: Sequence[tuple[int, float, float]] = (),
    weights: Mapping[str, float] | None = None,
    end: float | None = None,
    pool: tuple[int, int] = (0, 0),
) -> Records:
    rows = [request_row(i, row) for i, row in enumerate(requests)]
    weights = weights or dict.fromkeys(sorted({row["tenant"] for row in rows} or {"a"}), 1.0)

    def table(values: Sequence[Sequence[Any]], columns: Sequence[str]) -> pd.DataFrame:
        return frame([picoseconds(dict(zip(columns, row, strict=True))) for row in values], columns)

    return Records(
        requests=frame(rows, [*REQUEST_COLUMNS, *NAMES, "true_output_tokens"]),
        steps=frame(step_rows(steps), [*STEP_COLUMNS, *STEP_FLOATS]),
        service=table(service, SERVICE_COLUMNS),
        backlog=table(backlog, BACKLOG_COLUMNS),
        holds=table(holds, HOLD_COLUMNS),
        gaps=table(gaps, GAP_COLUMNS),
        tenants=tuple(weights),
        weights=tuple(weights.values()),
        device_kind="simulated",
        end=max((row["ended"] for row in rows), default=0) if end is None else round(end * MS),
        num_blocks=pool[0],
        block_size=pool[1],
    )


@pytest.fixture(scope="session")
def by_hand() -> Callable[..., Records]:
    return records_by_hand
