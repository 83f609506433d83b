"""Which rows of a trace are used, how fast, and how long they may be; every row left out is counted."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from bench.errors import BadInput
from bench.traces.reading import Loaded, Notes
from bench.traffic.config import TraceConfig
from bench.traffic.seeds import stream
from bench.traffic.times import LONGEST_ARRIVAL_S, SECOND

LENGTHS = ["prompt_tokens", "output_tokens"]


def select(loaded: Loaded, config: TraceConfig, seed: int, max_model_len: int) -> Loaded:
    """Window, sample, lengths, limit, rate, in this order. `config` has been checked."""
    rows, notes = loaded.rows, dict(loaded.notes)
    rows = _window(rows, notes, config.start_s, config.end_s)
    if config.fraction < 1:
        rows = _keep(rows, stream(seed, "sample").random(len(rows)) < config.fraction, notes, "not_sampled")
    rows = _fit(rows, notes, config, max_model_len)
    if config.limit is not None:
        rows = _keep(rows, np.arange(len(rows)) < config.limit, notes, "past_limit")
    if rows.empty:
        raise BadInput(f"{config.path}: no rows left: " + ", ".join(f"{name} {n}" for name, n in notes.items()))
    return Loaded(_faster(rows, config.rate_scale).reset_index(drop=True), notes)


def _keep(rows: pd.DataFrame, mask: pd.Series | np.ndarray, notes: Notes, note: str) -> pd.DataFrame:
    kept = rows[mask]
    notes[note] = len(rows) - len(kept)
    return kept


def _window(rows: pd.DataFrame, notes: Notes, start_s: float | None, end_s: float | None) -> pd.DataFrame:
    if start_s is None and end_s is None:
        return rows
    start = round(min(start_s or 0.0, LONGEST_ARRIVAL_S) * SECOND)
    end = round(min(math.inf if end_s is None else end_s, LONGEST_ARRIVAL_S + 1) * SECOND)
    inside = rows["arrival"].between(start, end, inclusive="left")
    kept = _keep(rows, inside, notes, "outside_window")
    return kept.assign(arrival=kept["arrival"] - start)


def _fit(rows: pd.DataFrame, notes: Notes, config: TraceConfig, max_model_len: int) -> pd.DataFrame:
    """The rule of `over_limit`: prompt + output must not exceed the model's limit, nor each its own."""
    if config.over_limit == "keep":
        return rows
    longest = min(config.max_prompt_tokens or max_model_len, max_model_len - 1)
    prompt = rows["prompt_tokens"].clip(upper=longest)
    room = (max_model_len - prompt).clip(upper=config.max_output_tokens or max_model_len)
    fitting = rows.assign(prompt_tokens=prompt, output_tokens=np.minimum(rows["output_tokens"], room))
    lost = rows[LENGTHS] - fitting[LENGTHS]
    over = lost.any(axis=1)
    if config.over_limit == "clip":
        if "prompt" in rows and lost["prompt_tokens"].any():
            raise BadInput("workload.over_limit: clip cannot shorten prompts that are texts; set drop")
        notes["clipped"] = int(over.sum())
        notes.update({f"clipped_{name}": int(lost[name].sum()) for name in LENGTHS})
        return fitting
    notes.update({f"dropped_{name}": int(rows.loc[over, name].clip(lower=0).sum()) for name in LENGTHS})
    return _keep(rows, ~over, notes, "dropped")


def _faster(rows: pd.DataFrame, scale: float) -> pd.DataFrame:
    if scale == 1:
        return rows
    slowest = rows["arrival"].iloc[-1] / scale / SECOND
    if slowest > LONGEST_ARRIVAL_S:
        raise BadInput(
            f"workload.rate_scale: {scale:g} puts the last request at {slowest:g} s, past {LONGEST_ARRIVAL_S}"
        )
    return rows.assign(arrival=np.rint(rows["arrival"] / scale).astype(np.int64))
