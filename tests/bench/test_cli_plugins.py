"""The three ways to bring a policy: a file with YAML, a package with entry points, a dotted path."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from packages import installed as installed_package
from tests.bench.conftest import Batchyard, summary_of
from tests.conftest import ROOT

OWN = """
from policies.api import PriorityPolicy

class LongestPrompt(PriorityPolicy):
    def __init__(self, sign=-1):
        super().__init__()
        self.sign = sign

    def key(self, request, now):
        return (self.sign * request.prompt_tokens,)
"""
BUSY = ["engine.max_num_seqs=4", "workload.rate=inf"]  # so that the order matters


def test_by_dotted_path(batchyard: Batchyard, tmp_path: Path) -> None:
    (tmp_path / "own_path").mkdir()
    (tmp_path / "own_path" / "longest.py").write_text(OWN)
    assert batchyard("policy._target_=own_path.longest.LongestPrompt", *BUSY, "hydra.run.dir=own").code == 0
    assert batchyard("policy=fcfs", *BUSY, "hydra.run.dir=fcfs").code == 0
    own, fcfs = summary_of(tmp_path / "own"), summary_of(tmp_path / "fcfs")
    assert own["completed"] == fcfs["completed"] == 40
    assert own["mean_ttft_ms"] != fcfs["mean_ttft_ms"]


def test_by_file_and_yaml(batchyard: Batchyard, tmp_path: Path) -> None:
    """The YAML may lie in any folder of `hydra.searchpath`, as it does in ``conf/``; the file wherever Python looks."""
    (tmp_path / "longest_yaml.py").write_text(OWN)
    (tmp_path / "conf" / "policy").mkdir(parents=True)
    (tmp_path / "conf" / "policy" / "longest.yaml").write_text("_target_: longest_yaml.LongestPrompt\nsign: -1\n")
    given = ["hydra.searchpath=[file://conf]", "hydra.sweep.dir=sweep", *BUSY]
    told = batchyard("-m", "policy=longest", "policy.sign=-1,1", *given)
    assert told.code == 0
    longest, shortest = (summary_of(tmp_path / "sweep" / job) for job in "01")
    assert shortest["mean_ttft_ms"] < longest["mean_ttft_ms"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of examples/, installed into a folder of its own; its sources are copied, for builds leave traces."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    subprocess.run(["cp", "-r", str(ROOT / "examples" / "tiny_policy"), str(source)], check=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target)]
    done = subprocess.run([*command, str(source / "tiny_policy")], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"pip could not build the example (it needs setuptools from an index): {done.stderr[-300:]}")
    return target


def test_by_an_installed_package(
    installed: Path, batchyard: Batchyard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(installed))
    assert "shortest_prompt" in batchyard("--help").out
    told = batchyard("-m", "policy=fcfs,shortest_prompt", "hydra.sweep.dir=sweep", *BUSY)
    assert told.code == 0
    fcfs, shortest = (summary_of(tmp_path / "sweep" / job) for job in "01")
    assert shortest["mean_ttft_ms"] < fcfs["mean_ttft_ms"]
    assert batchyard("policy=shortest_prompt", "policy.forgive=50").code == 0
    line = batchyard("policy=shortest_prompt", "+policy.forget=50").complaint
    assert "policy.forget" in line
    assert "forgive" in line


def test_an_installed_package_in_workers(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.cli", "run", "-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2",
         "policy=glob(shortest*)", "seed=0,1", "tracking=none", "workload.requests=20", "hydra.sweep.dir=sweep"],
        cwd=tmp_path, env={"PYTHONPATH": str(installed), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("sweep/*/summary.json"))) == 2


def test_an_entry_point_alone_is_enough(tmp_path: Path, batchyard: Batchyard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without YAML of its own the class is there with its default parameters."""
    installed_package(tmp_path / "site", "bare", "[batchyard.policies]\nbare = bare_policy:LongestPrompt\n")
    (tmp_path / "site" / "bare_policy.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert batchyard("policy=bare", "+policy.sign=1").code == 0


def test_a_broken_package_is_named(tmp_path: Path, batchyard: Batchyard, monkeypatch: pytest.MonkeyPatch) -> None:
    installed_package(tmp_path / "site", "gone", "[batchyard.conf]\ngone = gone_package.conf\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    line = batchyard().complaint
    assert "gone_package" in line
    assert "batchyard.conf" in line
