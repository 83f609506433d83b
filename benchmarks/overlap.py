"""What overlap hides on a real model on CPU: host work is added to each decision, in turn with and without overlap.

    python benchmarks/overlap.py [--quick] [--only sleep] [--model smollm2]

A *sleep* stands for a host core that is free; a busy loop takes a core from the model, and Python's lock from the
engine. `overlap_hides_<kind>_<ms>` is the share of what the work costs without overlap that it does not cost with it,
by the wall clock, on which a device drifts too; `unexposed_<kind>_<ms>` is the share of the host time, with overlap,
beside which the device was busy, by the run's records.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter, sleep
from typing import Any

import numpy as np
from figures import show
from workload import traffic

from backend.config import EngineConfig
from backend.load import serve_traffic
from backend.torch_device.device import TorchDevice
from backend.traffic import Traffic
from bench.metrics import MetricOptions, summarise
from policies.api import Decision, EngineView
from policies.fcfs import FCFS

SEQUENCES = 16
CLIENTS = 20
"""More than run at once: somebody always waits, so that there is always something to decide."""


def busy(seconds: float) -> None:
    until = perf_counter() + seconds
    while perf_counter() < until:
        pass


class Deliberate(FCFS):
    """First come, first served, after some thought, at every step."""

    preemptive = True  # asked even when no slot is free

    def __init__(self, think: Callable[[float], None], seconds: float) -> None:
        super().__init__()
        self.think, self.seconds = think, seconds
        self.decisions = 0

    def preemptible(self, request: object) -> bool:
        return False

    def decide(self, view: EngineView) -> Decision:
        self.decisions += 1
        if self.seconds:
            self.think(self.seconds)
        return Decision(super().decide(view).admit, revisit_steps=1)


@dataclass
class Measured:
    seconds: float
    decisions: int
    summary: dict[str, Any]


def work(requests: int) -> Traffic:
    """Short prompts, 20 to 60 tokens of output each, as the limit: all that runs is kept."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(20, 60, requests)
    fixed = np.ones(requests, dtype=np.int64)
    return replace(traffic(fixed * 0, fixed * 16, lengths, concurrency=CLIENTS), max_tokens=lengths)


def measure(model: str, requests: int, overlap: bool, think: Callable[[float], None], seconds: float) -> Measured:
    device = TorchDevice(model, num_blocks=200)
    policy = Deliberate(think, seconds)
    config = EngineConfig(max_num_seqs=SEQUENCES, max_num_batched_tokens=512, overlap=overlap)
    try:
        run = serve_traffic(work(requests), policy, device, config)
    finally:
        device.shutdown()
    summary = summarise(run.records, MetricOptions())
    assert summary["completed"] == requests
    return Measured(run.timing["run_s"], policy.decisions, summary)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round of less work instead of three")
    parser.add_argument("--only", choices=["sleep", "busy"], help="one kind of host work")
    parser.add_argument("--ms", type=int, nargs="+", default=[5, 10], help="of host work")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default="smollm2")
    options = parser.parse_args()
    requests, rounds = (40, 1) if options.quick else (80, options.rounds)
    kinds: dict[str, Callable[[float], None]] = {"sleep": sleep, "busy": busy}
    wanted = [options.only] if options.only else list(kinds)
    cases = [("sleep", 0), *((kind, ms) for kind in wanted for ms in options.ms)]
    measured: dict[tuple[str, int, bool], list[Measured]] = {}
    for _ in range(rounds):
        for kind, ms in cases:
            for overlap in (False, True):
                one = measure(options.model, requests, overlap, kinds[kind], ms / 1e3)
                measured.setdefault((kind, ms, overlap), []).append(one)
                said = (f"{name} {one.summary[name]:.3g}" for name in FIGURES)
                print(
                    f"    {kind} {ms} ms, {'overlap' if overlap else 'sync'}: {one.seconds:.2f} s, "
                    f"{one.decisions} decisions, {', '.join(said)}",
                    file=sys.stderr,
                    flush=True,
                )
    report(measured)


FIGURES = ("gpu_idle_fraction", "host_time_s", "exposed_host_time_s", "mean_tpot_ms")


def report(measured: dict[tuple[str, int, bool], list[Measured]]) -> None:
    def took(kind: str, ms: int, overlap: bool) -> float:
        return statistics.median(one.seconds for one in measured[kind, ms, overlap])

    plain_sync, plain = took("sleep", 0, False), took("sleep", 0, True)
    show("overlap_time_ratio_nothing_added", plain / plain_sync, "x", "<= 1.02")
    for (kind, ms, overlap), runs in measured.items():
        if ms and not overlap:
            decisions = statistics.median(one.decisions for one in runs)
            paid = took(kind, ms, False) - plain_sync
            show(f"sync_pays_{kind}_{ms}", paid / (ms / 1e3 * decisions), "1")
            hidden = 1 - (took(kind, ms, True) - plain) / paid
            target = ">= 0.9" if kind == "sleep" else None
            show(f"overlap_hides_{kind}_{ms}", hidden, "1", target)
            exposed = [
                one.summary["exposed_host_time_s"] / one.summary["host_time_s"] for one in measured[kind, ms, True]
            ]
            show(f"unexposed_{kind}_{ms}", 1 - statistics.median(exposed), "1", target)
    for (kind, ms, overlap), runs in measured.items():
        for name in FIGURES:
            value = statistics.median(one.summary[name] for one in runs)
            show(f"{name}_{kind}_{ms}_{'overlap' if overlap else 'sync'}", value, name.rpartition("_")[2])


if __name__ == "__main__":
    main()
