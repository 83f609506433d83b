"""Traffic drawn from distributions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from backend.traffic import NONE, Column, Traffic
from bench.errors import BadInput
from bench.traffic.arrivals import Process, merge
from bench.traffic.checks import KEY, inherit
from bench.traffic.clients import Tokens, deal, populate, rows_of
from bench.traffic.config import ArrivalConfig, DrawnConfig, LengthConfig, SenderConfig, SyntheticConfig, TenantConfig
from bench.traffic.lengths import lengths
from bench.traffic.seeds import stream


def synthesize(config: SyntheticConfig, seed: int, root: Path) -> Traffic:
    """A checked config to traffic. Every tenant draws from streams of its own name."""
    parties = config.tenants or {"default": TenantConfig()}
    arrival, tenant = arrivals(config, parties, seed)
    prompt, output, limit = (np.empty(len(arrival), np.int64) for _ in range(3))
    for (name, party), rows in zip(parties.items(), rows_of(tenant, len(parties)), strict=True):
        for what, own, default, column in (
            ("prompt", party.prompt, config.prompt, prompt),
            ("output", party.output, config.output, output),
        ):
            key = f"{KEY}.{what}" if own == LengthConfig() else f"{KEY}.tenants.{name}.{what}"
            column[rows] = lengths(key, inherit(own, default), len(rows), stream(seed, f"{what}/{name}"), root)
        limit[rows] = party.max_tokens or config.max_tokens or NONE
    return populate(Tokens(arrival, prompt, output, limit, tenant), parties, config, seed)


def arrivals(config: DrawnConfig, parties: Mapping[str, SenderConfig], seed: int) -> tuple[Column, Column]:
    """Times and tenants of all requests, in order; at one time, in the order of tenants, those dealt out first."""
    processes, members = _processes(config, parties)
    times, tenants = merge(processes, seed, config.requests, config.duration_s), []
    for process, names, drawn in zip(processes, members, times, strict=True):
        index = np.asarray([list(parties).index(name) for name in names])
        dealt = deal({name: parties[name] for name in names}, len(drawn), stream(seed, f"{process.stream}/tenants"))
        tenants.append(index[dealt])
    arrival, tenant = np.concatenate(times), np.concatenate(tenants)
    if not len(arrival):
        raise BadInput(f"{KEY}.duration_s: {config.duration_s:g} s pass before the first request")
    order = np.argsort(arrival, kind="stable")[: config.requests]
    return arrival[order], tenant[order]


def _processes(config: DrawnConfig, parties: Mapping[str, SenderConfig]) -> tuple[list[Process], list[list[str]]]:
    """Sources of requests and the tenants that each serves: one for all that only have a share, one for each other."""
    by_share = {name: party.share for name, party in parties.items() if party.rate is None}
    if by_share and config.rate is None:
        raise BadInput(f"{KEY}.rate: missing; the share of {', '.join(by_share)} is of it")
    if not by_share and config.rate is not None:
        raise BadInput(f"{KEY}.rate: every tenant has a rate of its own; set {KEY}.rate=null")
    whole, total = config.rate or 0.0, sum(by_share.values())
    pooled = [n for n in by_share if parties[n].requests is None and parties[n].arrival == ArrivalConfig()]
    processes, members = [], []
    if pooled:
        rate = whole * (sum(by_share[name] for name in pooled) / total)
        processes.append(_process(config, f"{KEY}.rate", "arrivals", config.arrival, rate, None))
        members.append(pooled)
    for name, party in parties.items():
        if name not in pooled:
            arrival = inherit(party.arrival, config.arrival)
            rate = whole * (party.share / total) if party.rate is None else party.rate
            key = f"{KEY}.rate" if party.rate is None else f"{KEY}.tenants.{name}.rate"
            processes.append(_process(config, key, f"arrivals/{name}", arrival, rate, party.requests))
            members.append([name])
    return processes, members


def _process(config: DrawnConfig, key: str, name: str, arrival: ArrivalConfig, rate: float, own: int | None) -> Process:
    count = min((limit for limit in (own, config.requests) if limit is not None), default=None)
    if math.isinf(rate) and (arrival.on_s is not None or arrival.ramp_s is not None):
        raise BadInput(f"{key}: inf cannot go on and off or up and down")
    if count is None and (config.duration_s is None or math.isinf(rate)):
        raise BadInput(f"{KEY}.requests: missing; nothing else ends {key}={rate:g}")
    return Process(key, name, arrival, rate, count)
