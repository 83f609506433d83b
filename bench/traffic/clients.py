"""Who sends a request and when its client loses interest: every column of a Traffic that is not time or length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from backend.traffic import NONE, Column, Tenant, Traffic
from bench.traffic.checks import inherit
from bench.traffic.config import ClientConfig, DrawnConfig, PartyConfig, TraceConfig
from bench.traffic.seeds import stream
from bench.traffic.times import constant, picoseconds

Rows = npt.NDArray[np.intp]


class Tokens(NamedTuple):
    """What is sent and when; (n,) columns of a Traffic."""

    arrival: Column
    prompt: Column
    output: Column
    limit: Column
    tenant: Column


def deal(parties: Mapping[str, PartyConfig], count: int, rng: np.random.Generator) -> Column:
    """(count,) indices into `parties`, drawn by share."""
    if len(parties) == 1:
        return np.zeros(count, np.int64)
    shares = np.cumsum([party.share for party in parties.values()])
    dealt: Column = np.searchsorted(shares, rng.random(count) * shares[-1], side="right").astype(np.int64)
    return dealt


def rows_of(tenant: Column, tenants: int) -> list[Rows]:
    """The rows of each tenant, in order."""
    ends = np.cumsum(np.bincount(tenant, minlength=tenants))
    return np.split(np.argsort(tenant, kind="stable"), ends[:-1])


def populate(
    tokens: Tokens, parties: Mapping[str, PartyConfig], workload: DrawnConfig | TraceConfig, seed: int
) -> Traffic:
    """The traffic of `tokens` once clients are added as the tenants' configs say, or else the workload's."""
    size = len(tokens.arrival)
    slo_classes = tuple(dict.fromkeys(party.slo for party in parties.values()))
    user, priority, slo = (np.zeros(size, np.int64) for _ in range(3))
    deadline, after, count, patience = (np.full(size, NONE, np.int64) for _ in range(4))
    first_user = 0
    for (name, party), rows in zip(parties.items(), rows_of(tokens.tenant, len(parties)), strict=True):
        user[rows] = first_user + stream(seed, f"users/{name}").integers(0, party.users, len(rows))
        priority[rows] = party.priority
        slo[rows] = slo_classes.index(party.slo)
        if party.deadline_s is not None:
            deadline[rows] = tokens.arrival[rows] + constant(len(rows), party.deadline_s)
        client = inherit(party.client, workload.client)
        after[rows], count[rows], patience[rows] = _leave(client, len(rows), seed, name)
        first_user += party.users
    return Traffic(
        arrival=tokens.arrival,
        prompt_tokens=tokens.prompt,
        output_tokens=tokens.output,
        max_tokens=tokens.limit,
        tenant=tokens.tenant,
        user=user,
        priority=priority,
        deadline=deadline,
        cancel_after=after,
        cancel_tokens=count,
        patience=patience,
        slo=slo,
        tenants=tuple(Tenant(name, party.weight) for name, party in parties.items()),
        slo_classes=slo_classes,
        concurrency=workload.concurrency,
    )


def _leave(config: ClientConfig, count: int, seed: int, tenant: str) -> tuple[Column, Column, Column]:
    """cancel_after, cancel_tokens and patience of `count` requests."""
    cancels = stream(seed, f"cancels/{tenant}").random(count) < (config.cancel_probability or 0.0)
    after = _times(config.cancel_after_s, config, count, stream(seed, f"cancel_after/{tenant}"))
    tokens = _tokens(config.cancel_tokens, config, count, stream(seed, f"cancel_tokens/{tenant}"))
    patience = _times(config.patience_s, config, count, stream(seed, f"patience/{tenant}"))
    return np.where(cancels, after, NONE), np.where(cancels, tokens, NONE), patience


def _times(seconds: float | None, config: ClientConfig, count: int, rng: np.random.Generator) -> Column:
    if seconds is None or config.spread != "exponential":
        return constant(count, seconds)
    return picoseconds(rng.exponential(seconds, count))


def _tokens(tokens: int | None, config: ClientConfig, count: int, rng: np.random.Generator) -> Column:
    if tokens is None or config.spread != "exponential":
        return np.full(count, NONE if tokens is None else tokens, np.int64)
    return rng.geometric(1 / tokens, count)
