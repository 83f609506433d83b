"""`benchmarks/cuda_check.py`: skipped where there is no GPU, and right in everything that needs none."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from backend.torch_device.where import cuda_missing
from tests.conftest import ROOT


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "cuda_check.py"), *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


@pytest.mark.skipif(not cuda_missing(), reason="there is a GPU: the script is to be run, not skipped")
def test_it_is_skipped_without_a_gpu_and_says_why() -> None:
    ran = run()
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == f"skipped: needs a GPU, and {cuda_missing()}\n"


def test_on_the_processor_everything_is_right() -> None:
    ran = run("--quick", "--device", "cpu")
    figures = {figure["figure"]: figure["value"] for figure in map(json.loads, ran.stdout.splitlines())}
    assert ran.returncode == 0, ran.stderr
    assert figures["contract_rules_broken"] == 0
    equal = [value for name, value in figures.items() if "_equal" in name]
    assert equal == [1.0] * len(equal)
    assert len(equal) >= 6
    assert {"gpu_idle_overlap", "tokens_per_s_sync", "ratio_graphs_to_eager"} <= set(figures)
