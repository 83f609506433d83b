"""Write traffic as a plain trace, to replay it elsewhere: read it back with ``workload.format=plain``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from backend.traffic import NONE, Column, Traffic
from bench.errors import BadInput
from bench.traffic.times import SECOND


def save_traffic(traffic: Traffic, path: Path) -> None:
    """CSV or JSON lines by the suffix of `path`: every column, exact to the picosecond, times as decimal texts.

    `concurrency` belongs to no request and is not in the file; users keep their groups, not their numbers.
    """
    frame = pd.DataFrame(_columns(traffic))
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        raise BadInput(f"{path}: traffic is saved as .csv or .jsonl")


def _columns(traffic: Traffic) -> dict[str, object]:
    columns: dict[str, object] = {
        "arrival_s": _seconds(traffic.arrival),
        "prompt_tokens": traffic.prompt_tokens,
        "output_tokens": _counts(traffic.output_tokens),
        "max_tokens": _counts(traffic.max_tokens),
        "tenant": np.array([tenant.name for tenant in traffic.tenants], object)[traffic.tenant],
        "weight": np.array([tenant.weight for tenant in traffic.tenants])[traffic.tenant],
        "user": traffic.user,
        "priority": traffic.priority,
        "slo": np.array(traffic.slo_classes, object)[traffic.slo],
        "deadline_s": _seconds(np.where(traffic.deadline == NONE, NONE, traffic.deadline - traffic.arrival)),
        "cancel_after_s": _seconds(traffic.cancel_after),
        "cancel_tokens": _counts(traffic.cancel_tokens),
        "patience_s": _seconds(traffic.patience),
    }
    if (traffic.output_tokens == NONE).all():
        del columns["output_tokens"]
    texts = {"id": traffic.ids, "prompt": traffic.prompts}
    return columns | {name: list(values) for name, values in texts.items() if values is not None}


def _seconds(times: Column) -> pd.Series:
    digits = pd.Series(times % SECOND).astype(str).str.zfill(12)
    return (pd.Series(times // SECOND).astype(str) + "." + digits).mask(times == NONE, None)


def _counts(counts: Column) -> pd.Series:
    return pd.Series(counts, dtype="Int64").mask(counts == NONE)
