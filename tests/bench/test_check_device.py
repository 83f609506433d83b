from __future__ import annotations

import pytest

from bench.check_device import main
from packages import installed

FACTORY = """
from backend.costs import ConstantCost
from backend.realtime import RealTimeDevice
from backend.simulated import SimulatedDevice

def abacus(step_ms=1.0):
    return SimulatedDevice(ConstantCost(step_ms), num_blocks=64, max_model_len=256, name="abacus")

class Deaf(SimulatedDevice):
    def __init__(self):
        super().__init__(ConstantCost(1), num_blocks=64, max_model_len=256)

    def wait(self, ticket):
        output = super().wait(ticket)
        output.stopped = []
        return output

def nothing():
    return 3
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Somebody else's package, as pip would install it."""
    (tmp_path / "their_devices.py").write_text(FACTORY)
    installed(tmp_path, "their-devices", "[batchyard.devices]\nabacus = their_devices:abacus\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("package")
def test_a_device_of_somebody_elses_package_is_checked_by_its_name(capsys):
    assert main(["abacus", "step_ms=0.5"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("abacus: simulated, 64 blocks of 16 tokens, up to 256 each\n")
    assert "  ok      a prompt may come in chunks\n" in out
    assert out.endswith(" rules kept, 0 broken\n")


@pytest.mark.usefixtures("package")
def test_one_that_breaks_a_rule_is_told_so(capsys):
    assert main(["their_devices:Deaf"]) == 1
    out = capsys.readouterr().out
    assert "  FAILED  a forced length is an EOS with exactly that token\n          forced to stop with token 1" in out


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["sundial"], "no device 'sundial'; there are: abacus"),
        (["their_devices:missing"], "their_devices:missing: module 'their_devices' has no attribute 'missing'"),
        (["nowhere:missing"], "No module named 'nowhere'"),
        (["abacus", "speed=3"], "got an unexpected keyword argument 'speed'"),
        (["abacus", "fast"], "'fast' is not of the form KEY=VALUE"),
        (["abacus", "step_ms=-1"], "step_ms"),
        (["their_devices:nothing"], "makes a int, which does not derive from backend.api.Device"),
    ],
)
def test_what_cannot_be_checked_is_refused_in_one_line(arguments, says, capsys):
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("batchyard check-device: ")
    assert printed.err.count("\n") == 1
    assert says in printed.err
