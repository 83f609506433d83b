"""What overlap hides on a real model on CPU: host work is added to each decision, in turn with and without overlap.

    python benchmarks/overlap.py [--quick] [--only sleep] [--rounds 40] [--threads 1] [--model smollm2]

A *sleep* stands for a host core that is free; a busy loop takes a core from the model, and Python's lock from the
engine. The work is one batch: eight requests of one length, and one more that waits for them, so that there is
something to decide at every step and both loops run the same steps. Sync and overlap run right after each other, the
order changing from round to round, in short runs, and figures are medians over many rounds of what such a pair gives:
the device drifts by more than overlap saves; `_low` and `_high` are the bounds of 95% for such a median.

`overlap_hides_<kind>_<ms>` is the share of what the work costs without overlap that it does not cost with it, by the
wall clock; `unexposed_<kind>_<ms>` is the share of the host time, with overlap, beside which the device was busy, by
the run's records.

`closed` is the other work, with nothing added: ten clients, who wait for eight slots. Under overlap a slot is given
anew one step after its request has ended (the next step is planned by then), so that the steps are more:
`closed_steps_ratio_<length>` says how many, for answers of 40 and of 160 tokens on average.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter, sleep
from typing import Any

import numpy as np
from figures import show
from scipy.stats import bootstrap
from workload import traffic

from backend.config import EngineConfig
from backend.load import serve_traffic
from backend.torch_device.device import TorchDevice
from backend.traffic import Traffic
from bench.metrics import MetricOptions, summarise
from policies.api import Decision, EngineView
from policies.fcfs import FCFS

SEQUENCES = 8
CLIENTS = 10
LENGTH = 50
FIGURES = ("gpu_idle_fraction", "host_time_s", "exposed_host_time_s", "mean_tpot_ms")


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


Pair = tuple[Measured, Measured]
"""The same work without overlap and with it."""


def one_batch() -> Traffic:
    return limited(np.array([*[LENGTH] * SEQUENCES, 1]), clients=None)


def closed(requests: int, mean: int) -> Traffic:
    """Outputs of 0.5 to 1.5 times the mean."""
    return limited(np.random.default_rng(0).integers(mean // 2, mean * 3 // 2, requests), CLIENTS)


def limited(lengths: np.ndarray, clients: int | None) -> Traffic:
    """Short prompts; the output's length is the limit, which the engine knows."""
    fixed = np.ones(len(lengths), dtype=np.int64)
    return replace(traffic(fixed * 0, fixed * 16, lengths, concurrency=clients), max_tokens=lengths)


def measure(
    device: TorchDevice, work: Traffic, think: Callable[[float], None], seconds: float, overlap: bool
) -> Measured:
    policy = Deliberate(think, seconds)
    config = EngineConfig(max_num_seqs=SEQUENCES, max_num_batched_tokens=512, overlap=overlap)
    run = serve_traffic(work, policy, device, config)
    summary = summarise(run.records, MetricOptions())
    assert summary["completed"] == len(work)
    return Measured(run.timing["run_s"], policy.decisions, summary)


def pair(round_: int, name: str, run: Callable[[bool], Measured]) -> Pair:
    order = (False, True) if round_ % 2 == 0 else (True, False)
    by_loop = {overlap: run(overlap) for overlap in order}
    for overlap, one in by_loop.items():
        said = ", ".join(f"{figure} {one.summary[figure]:.3g}" for figure in ("steps", *FIGURES))
        line = f"    {name}, {'overlap' if overlap else 'sync'}: {one.seconds:.2f} s, {one.decisions} decisions, {said}"
        print(line, file=sys.stderr, flush=True)
    return by_loop[False], by_loop[True]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--only", choices=["sleep", "busy", "closed"], help="one kind of host work, or none")
    parser.add_argument("--ms", type=int, nargs="+", default=[5, 10], help="of host work")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, help="of the model; default: all cores, so that the host has none")
    parser.add_argument("--model", default="smollm2")
    options = parser.parse_args()
    rounds = range(1 if options.quick else options.rounds)
    device = TorchDevice(options.model, num_blocks=400, threads=options.threads)
    measure(device, one_batch(), sleep, 0, True)  # the first steps find cold caches
    try:
        if options.only != "closed":
            added(device, rounds, [options.only] if options.only else ["sleep", "busy"], options.ms)
        if options.only in (None, "closed"):
            slots_given_anew(device, rounds)
    finally:
        device.shutdown()


def added(device: TorchDevice, rounds: Sequence[int], kinds: list[str], milliseconds: list[int]) -> None:
    thinks: dict[str, Callable[[float], None]] = {"sleep": sleep, "busy": busy}
    cases = [("sleep", 0), *((kind, ms) for kind in kinds for ms in milliseconds)]
    pairs: dict[tuple[str, int], list[Pair]] = {case: [] for case in cases}
    for round_ in rounds:
        for kind, ms in cases:
            run = partial(measure, device, one_batch(), thinks[kind], ms / 1e3)
            pairs[kind, ms].append(pair(round_, f"{kind} {ms} ms", run))
    report(pairs)


def report(pairs: dict[tuple[str, int], list[Pair]]) -> None:
    nothing = pairs["sleep", 0]
    ratios = [overlap.seconds / sync.seconds for sync, overlap in nothing]
    show("overlap_time_ratio_nothing_added", statistics.median(ratios), "x", "<= 1.02")
    if len(ratios) > 1:
        within = bootstrap((ratios,), np.median, rng=0).confidence_interval
        show("overlap_time_ratio_nothing_added_low", within.low, "x")
        show("overlap_time_ratio_nothing_added_high", within.high, "x")
    for (kind, ms), runs in pairs.items():
        if ms:
            target = ">= 0.9" if kind == "sleep" else None
            paid = [sync.seconds - plain.seconds for (sync, _), (plain, _) in zip(runs, nothing, strict=True)]
            lost = [overlap.seconds - plain.seconds for (_, overlap), (_, plain) in zip(runs, nothing, strict=True)]
            asked = statistics.median(sync.decisions for sync, _ in runs)
            show(f"sync_pays_{kind}_{ms}", statistics.median(paid) / (ms / 1e3 * asked), "1")
            hidden = 1 - statistics.median(lost) / statistics.median(paid)
            show(f"overlap_hides_{kind}_{ms}", hidden, "1", target)
            exposed = [one.summary["exposed_host_time_s"] / one.summary["host_time_s"] for _, one in runs]
            show(f"unexposed_{kind}_{ms}", 1 - statistics.median(exposed), "1", target)
    for (kind, ms), runs in pairs.items():
        for loop, name in enumerate(("sync", "overlap")):
            show(f"seconds_{kind}_{ms}_{name}", statistics.median(both[loop].seconds for both in runs), "s")
            for figure in FIGURES:
                value = statistics.median(both[loop].summary[figure] for both in runs)
                show(f"{figure}_{kind}_{ms}_{name}", value, figure.rpartition("_")[2])


def slots_given_anew(device: TorchDevice, rounds: Sequence[int]) -> None:
    for mean in (40, 160):
        run = partial(measure, device, closed(3200 // mean, mean), sleep, 0)
        pairs = [pair(round_, f"closed, {mean} tokens", run) for round_ in rounds]
        ratio = statistics.median(overlap.seconds / sync.seconds for sync, overlap in pairs)
        steps = statistics.median(overlap.summary["steps"] / sync.summary["steps"] for sync, overlap in pairs)
        show(f"closed_time_ratio_{mean}", ratio, "x")
        show(f"closed_steps_ratio_{mean}", steps, "x")


if __name__ == "__main__":
    main()
