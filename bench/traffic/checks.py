"""Refuse a workload that makes no sense before anything runs, naming the key."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from typing import TypeVar

from bench.errors import BadInput
from bench.traffic.config import (
    ArrivalConfig,
    ClientConfig,
    DrawnConfig,
    InstructionsConfig,
    LengthConfig,
    PartyConfig,
    SenderConfig,
    SyntheticConfig,
    TraceConfig,
)
from bench.traffic.times import LONGEST_SPAN_S

Settings = TypeVar("Settings", ArrivalConfig, LengthConfig, ClientConfig)

LENGTHS = {  # kind: what it takes, besides min and max
    "fixed": {"mean"},
    "uniform": {"low", "high"},
    "exponential": {"mean"},
    "lognormal": {"mean", "cv", "median", "sigma"},
    "zipf": {"exponent"},
    "empirical": {"values", "path"},
}
KEY = "workload"


def inherit(own: Settings, default: Settings) -> Settings:
    """A tenant's settings over the workload's: whole if it names a kind of its own, else field by field."""
    if getattr(own, "kind", None) is not None:
        return own
    return replace(default, **{f.name: v for f in fields(own) if (v := getattr(own, f.name)) is not None})


def positive(key: str, value: float | None, infinite: bool = False) -> None:
    if value is None:
        return
    if not value > 0:
        raise BadInput(f"{key}: {value:g} is not > 0")
    if math.isinf(value) and not infinite:
        raise BadInput(f"{key}: must be finite")


def span(key: str, value: float | None, zero: bool = False) -> None:
    """A time in seconds that has to fit in picoseconds, with room to spare."""
    if value is not None and not (0 <= value <= LONGEST_SPAN_S and (zero or value > 0)):
        raise BadInput(f"{key}: {value:g} is not a time {'>=' if zero else '>'} 0 and <= {LONGEST_SPAN_S:,} s")


def at_least(key: str, value: int | None, least: int) -> None:
    if value is not None and not least <= value < 2**31:
        raise BadInput(f"{key}: {value} is not between {least} and {2**31 - 1}")


def one_of(key: str, value: str | None, known: Collection[str]) -> None:
    if value is not None and value not in known:
        raise BadInput(f"{key}: {value!r} is not one of {', '.join(known)}")


def check_arrival(key: str, config: ArrivalConfig) -> None:
    one_of(f"{key}.kind", config.kind, ("poisson", "gamma", "constant"))
    positive(f"{key}.burstiness", config.burstiness)
    if config.burstiness is not None and config.kind != "gamma":
        raise BadInput(f"{key}.burstiness: only kind=gamma has one")
    span(f"{key}.start_s", config.start_s, zero=True)
    for name in ("on_s", "off_s", "ramp_s"):
        span(f"{key}.{name}", getattr(config, name))
    positive(f"{key}.ramp_to", config.ramp_to)
    for one, other in (("on_s", "off_s"), ("ramp_to", "ramp_s")):
        if (getattr(config, one) is None) != (getattr(config, other) is None):
            raise BadInput(f"{key}: {one} and {other} come together or not at all")


def check_length(key: str, config: LengthConfig) -> None:
    kind = config.kind or "lognormal"
    one_of(f"{key}.kind", kind, LENGTHS)
    for name in ("mean", "cv", "median", "sigma", "exponent"):
        positive(f"{key}.{name}", getattr(config, name))
    for name in ("low", "high", "min", "max"):
        at_least(f"{key}.{name}", getattr(config, name), 1)
    given = {f.name for f in fields(config) if getattr(config, f.name) is not None} - {"kind", "min", "max"}
    for name in sorted(given - LENGTHS[kind] - {"mean"}):  # a mean may stay when the kind alone is changed
        raise BadInput(f"{key}.{name}: kind={kind} takes no {name}, but {', '.join(sorted(LENGTHS[kind]))}")
    _check_complete(key, kind, given, config)
    for name, low, high in (("low", config.low, config.high), ("min", config.min or 1, config.max)):
        if low is not None and high is not None and low > high:
            raise BadInput(f"{key}.{name}: {low} is above its upper end {high}")


def _check_complete(key: str, kind: str, given: set[str], config: LengthConfig) -> None:
    if kind == "lognormal" and given & {"median", "sigma"}:
        needed = {"median", "sigma"}
        if "cv" in given:
            raise BadInput(f"{key}.cv: give mean and cv, or median and sigma")
    elif kind == "empirical":
        needed = set()
        if len(given & {"values", "path"}) != 1 or config.values == []:
            raise BadInput(f"{key}: kind=empirical takes either values or path")
    else:
        needed = LENGTHS[kind] - {"cv", "median", "sigma"}
    for name in sorted(needed - given):
        raise BadInput(f"{key}.{name}: missing; kind={kind} needs it")
    if kind == "zipf" and config.max is None:
        raise BadInput(f"{key}.max: missing; kind=zipf needs it")
    if kind == "fixed" and config.mean is not None and config.mean != int(config.mean):
        raise BadInput(f"{key}.mean: kind=fixed takes a whole number, not {config.mean:g}")


def check_client(key: str, config: ClientConfig) -> None:
    one_of(f"{key}.spread", config.spread, ("fixed", "exponential"))
    probability = config.cancel_probability
    if probability is not None and not 0 <= probability <= 1:
        raise BadInput(f"{key}.cancel_probability: {probability:g} is not between 0 and 1")
    if probability and config.cancel_after_s is None and config.cancel_tokens is None:
        raise BadInput(f"{key}: cancel_probability needs cancel_after_s or cancel_tokens")
    if not probability and (config.cancel_after_s is not None or config.cancel_tokens is not None):
        raise BadInput(f"{key}.cancel_probability: missing; without it nobody cancels")
    span(f"{key}.cancel_after_s", config.cancel_after_s)
    span(f"{key}.patience_s", config.patience_s)
    at_least(f"{key}.cancel_tokens", config.cancel_tokens, 1)


def check_party(key: str, config: PartyConfig, client: ClientConfig) -> None:
    positive(f"{key}.share", config.share)
    positive(f"{key}.weight", config.weight)
    at_least(f"{key}.users", config.users, 1)
    span(f"{key}.deadline_s", config.deadline_s)
    check_client(f"{key}.client", inherit(config.client, client))


def check_drawn(config: DrawnConfig, tenants: Mapping[str, SenderConfig]) -> None:
    positive(f"{KEY}.rate", config.rate, infinite=True)
    at_least(f"{KEY}.requests", config.requests, 1)
    positive(f"{KEY}.duration_s", config.duration_s)
    at_least(f"{KEY}.concurrency", config.concurrency, 1)
    at_least(f"{KEY}.max_tokens", config.max_tokens, 1)
    check_arrival(f"{KEY}.arrival", config.arrival)
    check_client(f"{KEY}.client", config.client)
    for name, tenant in tenants.items():
        key = f"{KEY}.tenants.{name}"
        check_party(key, tenant, config.client)
        positive(f"{key}.rate", tenant.rate, infinite=True)
        at_least(f"{key}.requests", tenant.requests, 1)
        at_least(f"{key}.max_tokens", tenant.max_tokens, 1)
        check_arrival(f"{key}.arrival", inherit(tenant.arrival, config.arrival))


def check_synthetic(config: SyntheticConfig) -> None:
    check_drawn(config, config.tenants)
    check_length(f"{KEY}.prompt", config.prompt)
    check_length(f"{KEY}.output", config.output)
    for name, tenant in config.tenants.items():
        key = f"{KEY}.tenants.{name}"
        check_length(f"{key}.prompt", inherit(tenant.prompt, config.prompt))
        check_length(f"{key}.output", inherit(tenant.output, config.output))


def check_instructions(config: InstructionsConfig) -> None:
    check_drawn(config, config.tenants)
    one_of(f"{KEY}.lengths", config.lengths, ("model", "corpus"))
    if config.noise is not None and not 0 <= config.noise <= 5:
        raise BadInput(f"{KEY}.noise: {config.noise:g} is not between 0 and 5")
    _check_drawn_length(f"{KEY}.noise", config.noise is not None, config)
    _check_context(f"{KEY}.context", config.context, config)
    for name, tenant in config.tenants.items():
        for end in ("typical_min", "typical_max"):
            at_least(f"{KEY}.tenants.{name}.{end}", getattr(tenant, end), 1)
        _check_context(f"{KEY}.tenants.{name}.context", inherit(tenant.context, config.context), config)


def _check_context(key: str, context: LengthConfig, config: InstructionsConfig) -> None:
    given = context != LengthConfig()
    _check_drawn_length(key, given, config)
    if given:
        check_length(key, context)


def _check_drawn_length(key: str, given: bool, config: InstructionsConfig) -> None:
    if given and config.lengths == "model":
        raise BadInput(f"{key}: a model reads the text and decides itself; set {KEY}.lengths=corpus, or leave it out")


def check_trace(config: TraceConfig, formats: Collection[str]) -> None:
    if config.format is None or config.path is None:
        missing = "format" if config.format is None else "path"
        raise BadInput(
            f"{KEY}.{missing}: missing; a trace needs the path of its file and a format: {', '.join(formats)}"
        )
    one_of(f"{KEY}.format", config.format, formats)
    one_of(f"{KEY}.over_limit", config.over_limit, ("drop", "clip", "keep"))
    one_of(f"{KEY}.assign", config.assign, ("trace", "shares"))
    start, end = config.start_s or 0.0, config.end_s
    if not 0 <= start < math.inf or (end is not None and not end > start):
        raise BadInput(f"{KEY}.start_s, {KEY}.end_s: [{start:g}, {end}) is not a window of time from 0 on")
    if not 0 < config.fraction <= 1:
        raise BadInput(f"{KEY}.fraction: {config.fraction:g} is not > 0 and <= 1")
    positive(f"{KEY}.rate_scale", config.rate_scale, infinite=True)
    for name in ("limit", "max_prompt_tokens", "max_output_tokens", "concurrency"):
        at_least(f"{KEY}.{name}", getattr(config, name), 1)
    if config.over_limit == "keep" and (config.max_prompt_tokens or config.max_output_tokens):
        raise BadInput(f"{KEY}.over_limit: keep contradicts max_prompt_tokens and max_output_tokens; drop or clip")
    check_client(f"{KEY}.client", config.client)
    for name, party in config.tenants.items():
        check_party(f"{KEY}.tenants.{name}", party, config.client)
    if config.assign == "shares" and not config.tenants:
        raise BadInput(f"{KEY}.tenants: missing; assign=shares deals the rows out to them")
