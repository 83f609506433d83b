"""Whatever ends a run, its state is right: real commands, and real signals."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest
from mlflow.entities import Run

from bench.tracking.callback import state_of_sweep
from bench.tracking.orphans import HOST, PROCESS, close_orphans
from tracked import client_of, runs_of, start, statuses, text_of, wait_for

OWN_POLICIES = """
import time
from policies.fcfs import FCFS

class Slow(FCFS):
    def decide(self, view):
        time.sleep(0.1)
        return super().decide(view)

class Odd(FCFS):
    def __init__(self, number):
        super().__init__()
        self.number = number

    def decide(self, view):
        if self.number % 2:
            raise ZeroDivisionError(f"no {self.number} here")
        return super().decide(view)
"""
SLOW = ("policy._target_=own.Slow", "workload.requests=2000")
PROMPT_S = 5.0


@pytest.fixture
def base_with_policies(base: Path) -> Path:
    (base / "own.py").write_text(OWN_POLICIES)
    return base


def running(base: Path) -> list[Run]:
    return [run for run in runs_of(base) if run.info.status == "RUNNING" and "policy" in run.data.params]


def stopped_by(number: signal.Signals, base: Path, *arguments: str, jobs: int = 1) -> tuple[int, float]:
    """Exit code of a command that got the signal while its jobs ran, and how long all states took to be final."""
    command = start(base, "run", *arguments)
    try:
        wait_for(lambda: len(running(base)) == jobs, 120)
        time.sleep(0.5)  # into the simulation
        command.send_signal(number)
        began = time.monotonic()
        wait_for(lambda: "RUNNING" not in statuses(base), 60)
        took = time.monotonic() - began
        command.wait(60)
        return command.returncode, took
    finally:
        os.killpg(command.pid, signal.SIGKILL) if command.poll() is None else None


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_and_sigterm_leave_a_killed_run(base_with_policies: Path, number: signal.Signals, code: int) -> None:
    returned, took = stopped_by(number, base_with_policies, *SLOW)
    assert statuses(base_with_policies) == ["KILLED"]
    assert returned == code
    assert took < PROMPT_S


def test_sigterm_ends_a_sweep_its_parent_and_its_workers(base_with_policies: Path) -> None:
    sweep = ("-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "seed=0,1")
    _, took = stopped_by(signal.SIGTERM, base_with_policies, *sweep, *SLOW, jobs=2)
    assert statuses(base_with_policies) == ["KILLED"] * 3
    assert took < PROMPT_S
    workers = [int(run.data.tags[PROCESS].partition("@")[0]) for run in runs_of(base_with_policies)]
    wait_for(lambda: not any(psutil.pid_exists(worker) for worker in workers), 10)


def test_a_run_left_by_kill_9_is_closed_by_the_next_start(base_with_policies: Path) -> None:
    command = start(base_with_policies, "run", *SLOW)
    wait_for(lambda: len(running(base_with_policies)) == 1, 120)
    os.killpg(command.pid, signal.SIGKILL)
    command.wait(10)
    assert statuses(base_with_policies) == ["RUNNING"]
    following = start(base_with_policies, "run", "workload.requests=20")
    said = following.communicate(timeout=120)[0]
    assert following.returncode == 0, said
    assert statuses(base_with_policies) == ["FINISHED", "KILLED"]


def test_only_dead_processes_of_this_host_are_closed(base: Path) -> None:
    client = client_of(base)
    experiment = client.create_experiment("batchyard")
    me = psutil.Process()
    host = os.uname().nodename
    tags = {
        "alive": {HOST: host, PROCESS: f"{me.pid}@{me.create_time():.0f}"},
        "elsewhere": {HOST: "another", PROCESS: "999999999@0"},
        "gone": {HOST: host, PROCESS: "999999999@0"},
        "its number is used again": {HOST: host, PROCESS: f"{me.pid}@1000"},
        "not ours": {},
    }
    ids = {name: client.create_run(experiment, run_name=name, tags=t).info.run_id for name, t in tags.items()}
    closed = close_orphans(client, experiment)
    assert sorted(closed) == sorted([ids["gone"], ids["its number is used again"]])
    assert statuses(base) == ["KILLED"] * 2 + ["RUNNING"] * 3


@pytest.mark.parametrize(
    ("jobs", "complete", "state"),
    [
        ({"FINISHED"}, True, "FINISHED"),
        ({"FINISHED", "FAILED"}, True, "FAILED"),
        ({"FINISHED"}, False, "FAILED"),  # some jobs never began
        (set(), False, "FAILED"),
        ({"FAILED", "KILLED"}, False, "KILLED"),
    ],
)
def test_a_sweep_is_finished_only_if_all_of_it_is(jobs: set[str], complete: bool, state: str) -> None:
    assert state_of_sweep(jobs, complete) == state


def test_failed_jobs_of_a_sweep_say_why_and_the_others_go_on(base_with_policies: Path) -> None:
    sweep = ("-m", "policy._target_=own.Odd", "+policy.number=0,1,2,3", "workload.requests=20")
    command = start(base_with_policies, "run", *sweep)
    said = command.communicate(timeout=240)[0]
    assert command.returncode == 1, said
    *jobs, parent = runs_of(base_with_policies)
    assert parent.info.status == "FAILED"
    by_number = {run.data.params["policy.number"]: run for run in jobs}
    assert {n: run.info.status for n, run in by_number.items()} == {
        "0": "FINISHED",
        "1": "FAILED",
        "2": "FINISHED",
        "3": "FAILED",
    }
    for number in "13":
        assert f"ZeroDivisionError: no {number} here" in text_of(base_with_policies, by_number[number], "error.txt")
        assert "own.py" in text_of(base_with_policies, by_number[number], "error.txt")
