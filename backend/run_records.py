"""Putting a run's rows beside what its traffic said: the Records of one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.engine import Engine
from backend.records import FINISH_REASONS, HOLD_COLUMNS, STATES, Records, Table
from backend.steps import StepLog
from backend.traffic import Traffic
from policies.api import Time


def assemble(
    traffic: Traffic, engine: Engine, log: StepLog, holds: list[tuple[Time, Time]], device_kind: str, end: Time | None
) -> Records:
    """`end` is the horizon of a run that was cut off; else the run ends with its last terminal event."""
    journal = engine.journal
    requests = journal.requests.frame(by="number")
    rows = requests["row"].to_numpy()
    details = journal.details
    beside: dict[str, pd.Series[Any]] = {
        "id": pd.Series([traffic.id(row) for row in rows.tolist()], dtype="str"),
        "tenant": _names(traffic.tenant[rows], [tenant.name for tenant in traffic.tenants]),
        "user": pd.Series(traffic.user[rows]),
        "weight": pd.Series(np.array([tenant.weight for tenant in traffic.tenants])[traffic.tenant[rows]]),
        "priority": pd.Series(traffic.priority[rows]),
        "deadline": pd.Series(traffic.deadline[rows]),
        "slo": _names(traffic.slo[rows], traffic.slo_classes),
        "true_output_tokens": pd.Series(traffic.output_tokens[rows]),
        "state": _names(requests["state"].to_numpy(), STATES),
        "finish_reason": _names(requests["finish_reason"].to_numpy(), FINISH_REASONS),
        "detail": pd.Series([details.get(number, "") for number in requests["number"].tolist()], dtype="str"),
    }
    if traffic.prompts is not None:
        beside["prompt"] = pd.Series([_writable(traffic.prompts[row]) for row in rows.tolist()], dtype=object)
    for name, values in beside.items():
        requests[name] = values
    hold = Table(HOLD_COLUMNS)
    for span in holds:
        hold.append(span)
    weight_of = {tenant.name: tenant.weight for tenant in traffic.tenants}
    return Records(
        requests,
        log.frame(),
        journal.service.frame(),
        journal.backlog.frame(),
        hold.frame(),
        journal.gaps.frame(),
        tuple(engine.tenants),
        tuple(weight_of[name] for name in engine.tenants),
        device_kind,
        _end(requests) if end is None else end,
        engine.pool.num_blocks,
        engine.pool.block_size,
    )


def _names(codes: npt.NDArray[np.integer], names: Sequence[str]) -> pd.Series[Any]:
    """Texts, kept once each and not once a row."""
    return pd.Series(pd.Categorical.from_codes(codes.astype(np.int32), categories=pd.Index(list(names))))


def _writable(text: str) -> str:
    """Half a surrogate pair has no UTF-8, and so no place in a file."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _end(requests: pd.DataFrame) -> Time:
    return int(requests["ended"].max()) if len(requests) else 0
