"""The command line before anything runs: quick, and it says what there is."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from bench.cli import COMMANDS, main

HEAVY = ("torch", "mlflow", "hydra", "pandas", "numpy", "transformers", "matplotlib", "rich")


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(f"  {name} " in said for name in COMMANDS)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from bench.cli import main; main(['--help']); "
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_help_answers_within_a_second() -> None:
    def once() -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "bench.cli", "--help"], capture_output=True, check=True)
        return time.perf_counter() - began

    assert min(once() for _ in range(3)) < 1.0


def test_a_run_without_mlflow_imports_neither_mlflow_nor_torch(tmp_path: object) -> None:
    code = (
        "import sys; from bench.cli import main; main(['run', 'tracking=none', 'workload.requests=5']); "
        "print([name for name in ('torch', 'mlflow') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=str(tmp_path))
    assert done.stderr.strip() == "[]"


def test_an_unknown_command_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rnu"]) == 2
    assert "'rnu'" in (said := capsys.readouterr().err)
    assert all(name in said for name in COMMANDS)


def test_every_command_can_be_loaded() -> None:
    from bench.cli import load

    assert all(callable(load(command)) for command in COMMANDS.values())


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("batchyard r", ["run"]),
        ("batchyard run poli", ["policy.", "policy="]),
        ("batchyard run policy=f", ["policy=fair_share", "policy=fcfs"]),
        ("batchyard run -m seed=0,1 engine.over", ["engine.overlap="]),
        ("batchyard run backend/cost=li", ["backend/cost=linear"]),
        ("batchyard ui --po", []),
    ],
)
def test_completion_offers_commands_options_and_keys(
    typed: str, offered: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COMP_LINE", typed)
    assert main(["-sc", "query=bash"]) == 0
    assert capsys.readouterr().out.split() == offered


def test_completion_can_be_installed_in_bash(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-sc", "install=bash"]) == 0
    script = capsys.readouterr().out
    assert script.rstrip().endswith("-F hydra_bash_completion batchyard")
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
