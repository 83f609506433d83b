"""Settings of the engine and of the simulated host."""

from __future__ import annotations

import math
from dataclasses import dataclass

from backend.errors import BadConfig
from policies.api import Time

SECOND: Time = 10**12
MILLISECOND: Time = 10**9
MICROSECOND: Time = 10**6

BATCHINGS = ("continuous", "static", "dynamic")
ADMISSIONS = ("optimistic", "reserve", "peak")


def picoseconds(value: float, unit: Time) -> Time:
    """`value` units as the nearest integer of picoseconds."""
    return round(value * unit)


@dataclass
class EngineConfig:
    batching: str = "continuous"
    """continuous | static | dynamic"""
    overlap: bool = True
    """Plan batch N+1 while the device computes N."""
    admission: str = "optimistic"
    """optimistic | reserve | peak"""
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    max_model_len: int | None = None
    """Prompt and output of one request; default: the model's, or the pool's tokens if those are fewer."""
    batch_timeout_s: float = 0.05
    """batching=dynamic: the longest that the oldest waits for a full batch."""
    max_waiting: int | None = None
    """Requests that may queue; one more is refused. Default: no bound."""
    chunked_prefill: bool = True
    """False: a prompt runs in one step, or waits for a step that has room for it."""
    audit: bool = False
    """Recount every block and request after every commit: slow, for tests."""

    def check(self) -> None:
        """Raise BadConfig naming the first key that cannot work."""
        _one_of("engine.batching", self.batching, BATCHINGS)
        _one_of("engine.admission", self.admission, ADMISSIONS)
        _at_least("engine.max_num_seqs", self.max_num_seqs, 1)
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise BadConfig(
                f"engine.max_num_batched_tokens: {self.max_num_batched_tokens} is less than engine.max_num_seqs = "
                f"{self.max_num_seqs}; every running request needs a token a step"
            )
        if self.max_model_len is not None:
            _at_least("engine.max_model_len", self.max_model_len, 2)
        if self.max_waiting is not None:
            _at_least("engine.max_waiting", self.max_waiting, 1)
        _not_negative("engine.batch_timeout_s", self.batch_timeout_s)


@dataclass
class HostTimes:
    """What a step costs the host, in virtual time: constants plus a part for each member of the batch."""

    plan_ms: float = 0.5
    commit_ms: float = 0.3
    plan_per_seq_us: float = 5.0
    commit_per_seq_us: float = 5.0

    def check(self) -> None:
        for name in ("plan_ms", "commit_ms", "plan_per_seq_us", "commit_per_seq_us"):
            _not_negative(f"backend.host.{name}", getattr(self, name))


def _one_of(key: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise BadConfig(f"{key}: {value!r} is none of {', '.join(known)}")


def _at_least(key: str, value: int, least: int) -> None:
    if value < least:
        raise BadConfig(f"{key}: {value} is not >= {least}")


def _not_negative(key: str, value: float) -> None:
    if not (value >= 0 and math.isfinite(value)):
        raise BadConfig(f"{key}: {value} is not a finite number >= 0")
