"""How long a model's answers are, measured once for all runs on the same workload."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
from filelock import FileLock

from backend.config import EngineConfig
from backend.simulation import Progress
from backend.traffic import NONE, Traffic
from bench.backends.api import Backend
from bench.config import PredictionConfig
from bench.traces.plain import read
from bench.tracking.provenance import traffic_digest
from bench.traffic.save import save_traffic
from policies.fcfs import FCFS


def rehearsed(
    traffic: Traffic, backend: Backend, engine: EngineConfig, folder: Path, about: str, progress: Progress | None
) -> Traffic:
    """`traffic` with the lengths that the model decides on, kept in `folder` as a plain trace that can be replayed.

    `about` tells models and their settings apart. Measured with everybody there from the start and nobody leaving; who
    is refused counts as one token.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(f"{about} {traffic_digest(traffic)}".encode()).hexdigest()[:16]
    path = folder / f"{name}.jsonl"
    with FileLock(path.with_suffix(".lock")):
        if not path.exists():
            draft = path.with_name(f".{name}.{os.getpid()}.jsonl")
            save_traffic(_measured(traffic, backend, engine, progress), draft)
            draft.replace(path)
    return replace(traffic, output_tokens=read(path, strict=True, seed=0).rows["output_tokens"].to_numpy())


def _measured(traffic: Traffic, backend: Backend, engine: EngineConfig, progress: Progress | None) -> Traffic:
    never = np.full(len(traffic), NONE, np.int64)
    crowd = replace(
        traffic,
        arrival=np.zeros(len(traffic), np.int64),
        cancel_after=never,
        cancel_tokens=never,
        patience=never,
        concurrency=None,
    )
    quickest = EngineConfig(
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_model_len=engine.max_model_len,
    )
    ran = backend.run(crowd, FCFS(), quickest, predictor=None, prediction=PredictionConfig(), seed=0, progress=progress)
    requests = ran.records.requests.sort_values("row")
    return replace(traffic, output_tokens=np.maximum(requests["output_tokens"].to_numpy(), 1).astype(np.int64))
