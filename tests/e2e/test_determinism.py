"""The same seed gives the same run: in another process, with another hash seed, with the jump off."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

TABLES = ("requests", "steps", "service", "backlog", "holds", "gaps")

ARGUMENTS = [
    "workload.requests=300",
    "workload.rate=60",
    "workload.client.cancel_probability=0.3",
    "workload.client.cancel_tokens=20",
    "engine.max_num_seqs=16",
    "backend.num_blocks=600",
    "tracking=none",
]


def run(folder: Path, hash_seed: int, *arguments: str) -> bytes:
    command = [sys.executable, "-m", "bench.cli", "run", f"hydra.run.dir={folder}", *ARGUMENTS, *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return (folder / "summary.json").read_bytes()


@pytest.mark.parametrize("policy", ["multi_bin", "fair_share"])
def test_same_seed_same_bytes(tmp_path: Path, policy: str) -> None:
    first = run(tmp_path / "a", 1, f"policy={policy}")
    assert run(tmp_path / "b", 2, f"policy={policy}", "backend.jump=false") == first
    for table in TABLES:
        a, b = (pd.read_parquet(tmp_path / folder / f"{table}.parquet") for folder in "ab")
        pd.testing.assert_frame_equal(a, b)
    assert run(tmp_path / "c", 1, f"policy={policy}", "seed=1") != first
