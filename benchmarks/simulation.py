"""Speed of the simulated GPU, from the first event to the last commit, records included, files apart, on one core.

    python benchmarks/simulation.py [--quick] [--peers DIR] [--only opened]

DIR holds the compiled peer: ``ve-aisim/bin/aisimulate`` and ``aisimulate.yaml``, the work of the closed loop here.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter

import numpy as np
from figures import calibration, seconds, show
from workload import traffic

from backend.config import SECOND, EngineConfig, HostTimes
from backend.costs import RooflineCost
from backend.hardware import GPUS, MODELS
from backend.simulated import SimulatedDevice
from backend.simulation import Run, simulate
from backend.traffic import Traffic
from policies.api import Policy
from policies.fair_share import FairShare
from policies.fcfs import FCFS
from policies.multi_bin import MultiBin
from policies.oracle_length import OracleLength
from predictors.noisy_oracle import NoisyOracle

POLICIES: dict[str, Callable[[], Policy]] = {
    "fcfs": FCFS,
    "multi_bin": MultiBin,
    "fair_share": FairShare,
    "oracle_length": OracleLength,
}
MODEL = MODELS["Llama-3.1-8B"]
COST = RooflineCost(MODEL, GPUS["H100"], compute_efficiency=0.6, memory_efficiency=0.8)


def closed_loop(n: int) -> Traffic:
    fixed = np.ones(n, dtype=np.int64)
    return traffic(fixed * 0, fixed * 1024, fixed * 256, concurrency=64)


def lognormal(n: int, rate: float | None) -> Traffic:
    """Prompts of 800 and outputs of 250 tokens on average; `rate` per second, None: all present at 0."""
    rng = np.random.default_rng(1)
    gaps = rng.exponential(1.0, n)
    arrival = np.zeros(n, dtype=np.int64) if rate is None else np.cumsum(gaps / rate * SECOND).astype(np.int64)
    prompt = np.clip(rng.lognormal(np.log(800) - 0.5, 1.0, n), 1, 6000).astype(np.int64)
    output = np.clip(rng.lognormal(np.log(250) - 0.32, 0.8, n), 1, 2000).astype(np.int64)
    return traffic(arrival, prompt, output, tenants=3)


def run(work: Traffic, policy: Policy, progress: Callable[[int, int], None] | None = None) -> Run:
    device = SimulatedDevice(COST, num_blocks=20_000, block_size=16, max_model_len=8192)
    config = EngineConfig()
    predictor = NoisyOracle(relative_error=0.3) if "prediction" in policy.needs else None
    return simulate(work, policy, device, config, host=HostTimes(), predictor=predictor, progress=progress)


def speed(work: Traffic, policy: Callable[[], Policy]) -> float:
    """Simulated requests a second of wall clock."""
    return len(work) / seconds(lambda: run(work, policy()))


def load_of(share: float, n: int) -> float:
    """Requests per second that are `share` of what the GPU can serve of the lognormal work."""
    records = run(lognormal(n, None), FCFS()).records
    return share * n * SECOND / records.end


class Measured(Exception):
    """Enough requests have gone through."""


@dataclass
class Lap:
    """Wall clock between the end of request number `first` and that of number `last`, which stops the run."""

    first: int
    last: int
    started: tuple[int, float] = field(default=(0, 0.0))
    cost: float = 0.0

    def __call__(self, ended: int, total: int) -> None:
        if ended >= self.first and not self.started[0]:
            self.started = ended, perf_counter()
        if ended >= self.last:
            self.cost = (perf_counter() - self.started[1]) / (ended - self.started[0])
            raise Measured


def admission_cost(policy: Callable[[], Policy], waiting: int, admissions: int) -> float:
    """Seconds for each request that comes and goes while `waiting` others wait.

    A closed loop keeps the queue at that depth. Answers of 16 to 19 tokens: admissions are nearly all of the work,
    and those that go first are about as long as the rest.
    """
    lap = Lap(first=1000, last=1000 + admissions)
    clients = waiting + 64
    n = clients + lap.last
    ones = np.ones(n, dtype=np.int64)
    work = traffic(
        ones * 0, ones * 16, 16 + np.random.default_rng(2).integers(0, 4, n), tenants=27, concurrency=clients
    )
    try:
        run(work, policy(), lap)
    except Measured:
        return lap.cost
    raise AssertionError(f"the run ended before {lap.last} requests did")


def million(n: int) -> tuple[float, float]:
    """Seconds and peak MiB of this process for `n` requests, open loop at 80% load."""
    work = lognormal(n, load_of(0.8, 2000))
    took = seconds(lambda: run(work, FCFS()))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return took, peak / (2**20 if sys.platform == "darwin" else 2**10)


def peer_speed(peers: Path) -> float:
    """Requests a second of AISimulate on 5,000 requests of the closed loop, by its own clock."""
    with tempfile.TemporaryDirectory() as out:
        command = [str(peers / "ve-aisim/bin/aisimulate"), "predict", "-c", str(peers / "aisimulate.yaml")]
        command += ["--output-dir", out, "--overwrite", "--format", "json"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    said = json.loads(done.stdout.splitlines()[-1])
    return float(said["completed_requests"] / said["wall_time_ms"] * 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less work, best of 2; figures are named by their size")
    parser.add_argument("--peers", type=Path, help="folder of the compiled peer")
    parser.add_argument("--only", choices=[part.__name__ for part in PARTS], help="one part of the figures")
    options = parser.parse_args()
    show("calibration", max(calibration() for _ in range(5)), "turns/s")
    for part in PARTS:
        if options.only in (None, part.__name__):
            part(options.quick, options.peers)


def closed(quick: bool, peers: Path | None) -> None:
    rounds = _rounds(quick)
    work = closed_loop(1000 if quick else 5000)
    show("simulated_requests_per_s", max(speed(work, FCFS) for _ in rounds), "requests/s", ">= 20000")
    if peers:
        pairs = [speed(work, FCFS) / peer_speed(peers) for _ in rounds]
        show("ratio_to_aisimulate", statistics.median(pairs), "x")


def opened(quick: bool, peers: Path | None) -> None:
    work = lognormal(1000 if quick else 5000, load_of(0.8, 2000))
    for name, policy in POLICIES.items():
        figure = f"simulated_requests_per_s_open_{name}"
        show(figure, max(speed(work, policy) for _ in _rounds(quick)), "requests/s", ">= 10000")


def admission(quick: bool, peers: Path | None) -> None:
    for name, policy in POLICIES.items():
        few, many = [
            min(admission_cost(policy, waiting, 5000 if quick else 25_000) for _ in _rounds(quick))
            for waiting in (1000, 100_000)
        ]
        show(f"admission_cost_ratio_100k_{name}", many / few, "x", "<= 2")


def large(quick: bool, peers: Path | None) -> None:
    size, n = ("20k", 20_000) if quick else ("1m", 1_000_000)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        took, peak = process.submit(million, n).result()
    show(f"seconds_{size}", took, "s", None if quick else "<= 120")
    show(f"peak_rss_mib_{size}", peak, "MiB", None if quick else "<= 1024")


def _rounds(quick: bool) -> range:
    return range(2 if quick else 5)


PARTS = (closed, opened, admission, large)


if __name__ == "__main__":
    main()
