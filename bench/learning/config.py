"""The shape of a training's configuration: what can be typed behind ``batchyard train``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from bench.tracking.api import TrackingSettings


@dataclass
class SplitConfig:
    """Which rows are not learnt from, so that predictions can be scored on them."""

    by: str = "conversation"
    """conversation (prompts of one conversation stay together) | prompt | time (the last ones, by arrival)"""
    test: float = 0.2
    """Share of the rows."""
    seed: int = 0


@dataclass
class RegisterConfig:
    """MLflow's model registry."""

    name: str | None = "length"
    """null: the model is logged with its run, and not registered."""
    alias: str | None = "champion"
    """Taken over from whichever version had it."""


@dataclass
class TrainConfig:
    predictor: dict[str, Any] = MISSING
    data: Any = MISSING
    """corpus, or a file of rows (.jsonl, .jsonl.gz), or a list of files."""
    test: str | None = None
    """A file of rows to score on, in place of a split."""
    split: SplitConfig = field(default_factory=SplitConfig)
    caps: dict[str, int] = field(default_factory=dict)
    """By model: the length from which an answer counts as cut, where the rows do not say it themselves."""
    corpus_rows: int = 5_000
    corpus_noise: float = 0.52
    register: RegisterConfig = field(default_factory=RegisterConfig)
    tracking: TrackingSettings = field(default_factory=TrackingSettings)
