"""`backend=installed`: a device of somebody else's package runs a workload under any policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from packages import installed
from tests.bench.conftest import Batchyard, summary_of

DEVICES = """
from backend.costs import ConstantCost
from backend.realtime import RealTimeDevice
from backend.simulated import SimulatedDevice

def abacus(step_ms=1.0):
    return RealTimeDevice(ConstantCost(step_ms), num_blocks=64, max_model_len=2048, name="abacus")

def virtual():
    return SimulatedDevice(ConstantCost(1), num_blocks=64, max_model_len=2048, name="virtual")
"""
SHORT = [
    "backend=installed",
    "workload=synthetic",
    "workload.rate=inf",
    "workload.requests=6",
    "workload.prompt.mean=9",
    "workload.output.mean=9",
]


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    installed(site, "batchyard-abacus", "[batchyard.devices]\nabacus = abacus_devices:abacus\n")
    (site / "abacus_devices.py").write_text(DEVICES)
    monkeypatch.syspath_prepend(str(site))


def test_it_runs_by_name_and_with_its_settings(batchyard: Batchyard, tmp_path: Path) -> None:
    told = batchyard("-m", *SHORT, "backend.name=abacus", "policy=fcfs,fair_share", "hydra.sweep.dir=sweep")
    assert told.code == 0, told.err
    for job in "01":
        assert summary_of(tmp_path / "sweep" / job)["completed"] == 6
    slower = batchyard(*SHORT, "backend.name=abacus", "+backend.settings.step_ms=20", "hydra.run.dir=slower")
    assert slower.code == 0, slower.err
    assert summary_of(tmp_path / "slower")["mean_tpot_ms"] >= 20


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], "backend.name"),
        (["backend.name=sundial"], "no device 'sundial'; there are: abacus"),
        (["backend.name=abacus_devices:missing"], "no attribute 'missing'"),
        (["backend.name=abacus", "+backend.settings.speed=3"], "unexpected keyword argument 'speed'"),
        (["backend.name=abacus", "+backend.settings.step_ms=-1"], "step_ms"),
        (["backend.name=abacus", "backend.sampling.top_p=0"], "backend.sampling.top_p"),
        (["backend.name=abacus_devices:virtual"], "device virtual takes no token ids"),
    ],
)
def test_what_cannot_run_is_one_line(batchyard: Batchyard, given: list[str], says: str) -> None:
    assert says in batchyard(*SHORT, *given).complaint
