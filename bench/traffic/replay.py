"""The rows of a trace as traffic: what the file says of a row stands, the config fills in the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from backend.traffic import NONE, Column, Tenant, Traffic
from bench.errors import BadInput
from bench.traffic.checks import KEY
from bench.traffic.clients import Tokens, deal, populate
from bench.traffic.config import PartyConfig, TraceConfig
from bench.traffic.seeds import stream


def replay(rows: pd.DataFrame, config: TraceConfig, seed: int) -> Traffic:
    """`rows` as of ``bench.traces.reading.Loaded``."""
    parties, tenant = _assign(rows, config, seed)
    limit = _column(rows, "max_tokens", np.full(len(rows), NONE, np.int64))
    lengths = rows["prompt_tokens"].to_numpy(), rows["output_tokens"].to_numpy()
    drawn = populate(Tokens(rows["arrival"].to_numpy(), *lengths, limit, tenant), parties, config, seed)
    slo, slo_classes = _slo(rows, drawn)
    return replace(
        drawn,
        user=_users(rows, drawn),
        priority=rows["priority"].to_numpy() if "priority" in rows else drawn.priority,
        deadline=_column(rows, "deadline", drawn.deadline, since=drawn.arrival),
        cancel_after=_column(rows, "cancel_after", drawn.cancel_after),
        cancel_tokens=_column(rows, "cancel_tokens", drawn.cancel_tokens),
        patience=_column(rows, "patience", drawn.patience),
        slo=slo,
        slo_classes=slo_classes,
        tenants=_weights(rows, drawn),
        ids=rows["id"].tolist() if "id" in rows else None,
        prompts=rows["prompt"].tolist() if "prompt" in rows else None,
    )


def _assign(rows: pd.DataFrame, config: TraceConfig, seed: int) -> tuple[Mapping[str, PartyConfig], Column]:
    """Tenants and the index of each row's one."""
    if config.assign == "shares":
        return config.tenants, deal(config.tenants, len(rows), stream(seed, "tenants"))
    names = rows["tenant"] if "tenant" in rows else pd.Series("default", index=rows.index)
    codes, found = pd.factorize(names)
    unknown = [name for name in config.tenants if name not in set(found)]
    if unknown:
        few = ", ".join(map(str, found[:10]))
        raise BadInput(
            f"{KEY}.tenants.{unknown[0]}: the trace has no such tenant, but {few} (or set {KEY}.assign=shares)"
        )
    return {str(name): config.tenants.get(name, PartyConfig()) for name in found}, codes.astype(np.int64)


def _column(rows: pd.DataFrame, name: str, drawn: Column, since: Column | int = 0) -> Column:
    """What the file has; where that is NONE, what was drawn."""
    if name not in rows:
        return drawn
    values = rows[name].to_numpy()
    return np.where(values == NONE, drawn, values + since)


def _slo(rows: pd.DataFrame, drawn: Traffic) -> tuple[Column, Sequence[str]]:
    if "slo" not in rows:
        return drawn.slo, drawn.slo_classes
    codes, names = pd.factorize(rows["slo"])
    return codes.astype(np.int64), tuple(map(str, names))


def _users(rows: pd.DataFrame, drawn: Traffic) -> Column:
    """Users that the file names are told apart within their tenant; the unnamed come after them."""
    if "user" not in rows:
        return drawn.user
    named = (rows["user"] != "").to_numpy()
    codes, users = pd.factorize(pd.MultiIndex.from_arrays([drawn.tenant[named], rows["user"].to_numpy()[named]]))
    numbers = drawn.user + len(users)
    numbers[named] = codes
    return numbers


def _weights(rows: pd.DataFrame, drawn: Traffic) -> Sequence[Tenant]:
    if "weight" not in rows:
        return drawn.tenants
    given = rows["weight"].groupby(drawn.tenant).agg(["min", "max"])
    uneven = given.index[given["min"] != given["max"]]
    if len(uneven):
        raise BadInput(f"weight: tenant {drawn.tenants[uneven[0]].name} has several; it is one number a tenant")
    return tuple(replace(one, weight=weight) for one, weight in zip(drawn.tenants, given["min"].tolist(), strict=True))
