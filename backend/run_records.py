"""Putting a run's rows beside what its traffic said: the Records of one run."""

from __future__ import annotations

import numpy as np
import pandas as pd

from backend.engine import Engine
from backend.records import HOLD_COLUMNS, STATES, Records, Table
from backend.steps import StepLog
from backend.traffic import Traffic
from policies.api import Time


def assemble(
    traffic: Traffic, engine: Engine, log: StepLog, holds: list[tuple[Time, Time]], device_kind: str, end: Time | None
) -> Records:
    """`end` is the horizon of a run that was cut off; else the run ends with its last terminal event."""
    journal = engine.journal
    requests = journal.requests.frame().sort_values("number", ignore_index=True)
    rows = requests["row"].to_numpy()
    codes = traffic.tenant[rows]
    names = np.array([tenant.name for tenant in traffic.tenants], dtype=object)
    weights = np.array([tenant.weight for tenant in traffic.tenants])
    finish = [journal.details.get(number, ("length", "")) for number in requests["number"]]
    extra = {
        "id": [traffic.id(row) for row in rows],
        "tenant": names[codes],
        "user": traffic.user[rows],
        "weight": weights[codes],
        "priority": traffic.priority[rows],
        "deadline": traffic.deadline[rows],
        "slo": np.array(traffic.slo_classes, dtype=object)[traffic.slo[rows]],
        "true_output_tokens": traffic.output_tokens[rows],
        "finish_reason": [reason for reason, _ in finish],
        "detail": [detail for _, detail in finish],
    }
    requests = requests.assign(state=np.array(STATES, dtype=object)[requests["state"].to_numpy()], **extra)
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


def _end(requests: pd.DataFrame) -> Time:
    return int(requests["ended"].max()) if len(requests) else 0
