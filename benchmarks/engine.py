"""How fast the CPU engine is: against its own floor, and in turn with other engines on the same work.

    python benchmarks/engine.py [--quick] [--peers DIR]

The work is that of shared/peers/work.py ($BATCHYARD_SHARED/peers). DIR holds what shared/peers/README.md builds:
ve-vllm, ve-hf and `model`; without it ours and the floor are measured alone. Each run has a line on stderr.
Absolute figures drift with the machine: only ratios of alternating runs mean something, on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import statistics
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from figures import show

from backend.api import Sampling, Work
from backend.config import EngineConfig
from backend.engine import Engine
from backend.request import Request
from backend.torch_device.device import TorchDevice
from backend.torch_device.fused import FusedDecoder
from backend.torch_device.kv_cache import KVCache
from backend.torch_device.native import Matrix
from backend.torch_device.runner import native_cache, native_step
from backend.torch_device.step_inputs import Piece, StepInputs, step_inputs
from policies.fcfs import FCFS

SHARED = Path(os.environ.get("BATCHYARD_SHARED", Path(__file__).resolve().parents[2] / "shared"))
BUDGET = 512  # tokens a step, as the peers have it
Rows = Sequence[tuple[list[int], int]]


@dataclass
class Measured:
    seconds: float
    tokens: int
    forward: float = 0.0  # of those seconds, inside the model
    steps: list[StepInputs] = field(default_factory=list)


class Watched:
    """A runner that keeps what it ran and how long it took."""

    def __init__(self, inner: FusedDecoder) -> None:
        self.inner, self.description, self.cache = inner, inner.description, None
        self.steps: list[StepInputs] = []
        self.seconds = 0.0

    def logits(self, step: StepInputs, cache: KVCache) -> torch.Tensor:
        began = perf_counter()
        logits = self.inner.logits(step, cache)
        self.seconds += perf_counter() - began
        self.steps.append(step)
        return logits


def run_ours(device: TorchDevice, watched: Watched, rows: Rows, sequences: int) -> Measured:
    """All requests present at the start, overlap on, until the last has ended."""
    config = EngineConfig(max_num_seqs=sequences, max_num_batched_tokens=BUDGET)
    can, policy = device.capabilities, FCFS()
    engine = Engine(policy, config, can.num_blocks, can.block_size, can.max_model_len, np.random.default_rng(0))
    watched.steps, watched.seconds = [], 0.0
    began, tokens = perf_counter(), 0
    for i, (prompt, count) in enumerate(rows):
        device.open(Work(str(i), len(prompt), prompt, sampling=Sampling(ignore_eos=True)))
        engine.submit(Request(str(i), "all", len(prompt), count, 0), 0)
    flying: deque[int] = deque()
    while engine.live:
        engine.begin(0, False)
        batch = engine.apply(policy.decide(engine.view) if engine.asks() else None)
        if batch is not None:
            flying.append(device.submit(batch, 0))
        if len(flying) == 2 or batch is None:
            output = device.wait(flying.popleft())
            tokens += engine.commit(output, 0).tokens
        for request in engine.gone:
            device.close(request.id)
        engine.over, engine.gone = [], []
    return Measured(perf_counter() - began, tokens, watched.seconds, watched.steps)


def best(act: Callable[[], object], times: int = 3) -> float:
    """The shortest of a few runs, in seconds."""
    found = float("inf")
    for _ in range(times):
        began = perf_counter()
        act()
        found = min(found, perf_counter() - began)
    return found


class Floor:
    """The best known kernel for each shape, timed alone: matrix products ours or oneDNN's, attention ours.

    What a call of ours costs by itself, from Python and to wake the threads, is taken off: the engine makes one a step.
    """

    def __init__(self, runner: FusedDecoder, device: TorchDevice) -> None:
        self.runner, self.threads, self.cache = runner, device.threads, device._cache
        self.dtype = runner.kernels.dtype
        decoder = runner.decoder
        layers = [decoder.layer[i] for i in range(decoder.layers)]
        self.matrices = [m for layer in layers for m in (layer.qkv, layer.out, layer.gate_up, layer.down)]
        self.head = decoder.head
        self.plain = {id(m): torch.randn(m.n, m.k).to(self.dtype) for m in [*self.matrices, self.head]}
        self._known: dict[tuple[str, int], float] = {}
        self._product_call, self._attention_call = self._empty_product(), self._empty_attention()

    def seconds(self, steps: Sequence[StepInputs]) -> float:
        return sum(self.products(len(s.ids), len(s.sampled)) + self.attention(s) for s in steps)

    def products(self, rows: int, samples: int) -> float:
        layers = self._once(("layers", rows), lambda: self._matrices(self.matrices, rows))
        head = self._once(("head", samples), lambda: self._matrices([self.head], samples))
        return layers + head

    def attention(self, step: StepInputs) -> float:
        return self._attended(step, 2) - self.runner.decoder.layers * self._attention_call

    def _attended(self, step: StepInputs, times: int) -> float:
        decoder, kernels = self.runner.decoder, self.runner.kernels
        heads, dim = decoder.heads, self.cache.shape.head_dim
        q = torch.randn(len(step.ids), heads, dim).to(self.dtype)
        kv = torch.randn(len(step.ids), self.cache.shape.kv_heads, dim)
        cache, native = native_cache(self.cache), native_step(step)

        def all_layers() -> None:
            for layer in range(decoder.layers):
                kernels.attend(cache, native, layer, self.threads, decoder.scale, q, kv, kv)

        return best(all_layers, times)

    def _empty_attention(self) -> float:
        """Seconds for a call that attends from one token to itself."""
        one = step_inputs([Piece(0, 1, (0,), True)], self.cache.block_size)
        return self._attended(one, 50) / self.runner.decoder.layers

    def _empty_product(self) -> float:
        """Seconds for a call with the smallest matrix."""
        kernels, x, out = self.runner.kernels, torch.zeros(1, 16).to(self.dtype), torch.empty(1, 16)
        panels = kernels.pack(torch.zeros(16, 16))
        tiny = Matrix(panels.data_ptr(), None, 16, 16)
        return best(lambda: kernels.multiply(tiny, x, self.threads, out), 1000)

    def _once(self, key: tuple[str, int], measure: Callable[[], float]) -> float:
        if key not in self._known:
            self._known[key] = measure() if key[1] else 0.0
        return self._known[key]

    def _matrices(self, matrices: Sequence[Any], rows: int) -> float:
        inputs = {k: torch.randn(rows, k).to(self.dtype) for k in {m.k for m in matrices}}
        out = {n: torch.empty(rows, n) for n in {m.n for m in matrices}}

        def ours() -> None:
            for m in matrices:
                self.runner.kernels.multiply(m, inputs[m.k], self.threads, out[m.n])

        def onednn() -> None:
            for m in matrices:
                torch.nn.functional.linear(inputs[m.k], self.plain[id(m)])

        with torch.inference_mode():
            return min(best(ours, 5) - len(matrices) * self._product_call, best(onednn, 5))


def run_peer(python: Path, script: str, model: Path, count: int, sequences: int) -> float:
    """Tokens a second of another engine, in its own environment, as its script prints them."""
    command = [str(python), str(SHARED / "peers" / script), str(model), str(count), str(sequences)]
    out = subprocess.run(command, capture_output=True, text=True, check=True, cwd=SHARED / "peers").stdout
    line = next(line for line in out.splitlines() if "tok/s" in line)
    print(f"    {line}", file=sys.stderr, flush=True)
    found = re.search(r"([\d.]+) tok/s", line)
    assert found is not None
    return float(found[1])


def work(count: int) -> Rows:
    spec = importlib.util.spec_from_file_location("work", SHARED / "peers" / "work.py")
    if spec is None or spec.loader is None:
        raise SystemExit(f"{SHARED}/peers/work.py is not there; set BATCHYARD_SHARED")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows: Rows = module.rows(count)
    return rows


def measure(sequences: int, model: str, peers: Path | None, runs: int) -> dict[str, float]:
    rows = work(sequences)
    rates: dict[str, list[float]] = {"ours": [], "vllm": [], "transformers": []}
    shares, overheads = [], []
    for _ in range(runs):
        device = TorchDevice(model, dtype="bfloat16", num_blocks=2000)
        assert isinstance(device._runner, FusedDecoder), device.description
        inner = device._runner
        watched = device._runner = Watched(inner)  # type: ignore[assignment]
        run_ours(device, watched, rows[:4], sequences)  # the first steps find cold caches
        measured = run_ours(device, watched, rows, sequences)
        assert measured.tokens == sum(count for _, count in rows)
        floor = Floor(inner, device).seconds(measured.steps)
        device.shutdown()
        rate = measured.tokens / measured.seconds
        rates["ours"].append(rate)
        shares.append(floor / measured.seconds)
        overheads.append((measured.seconds - measured.forward) / len(measured.steps) * 1e3)
        print(
            f"    ours: {rate:.1f} tok/s, floor {floor:.2f} s of {measured.seconds:.2f} s", file=sys.stderr, flush=True
        )
        if peers is not None:
            for name, folder, script in (("vllm", "ve-vllm", "vllm_cpu.py"), ("transformers", "ve-hf", "hf_cb.py")):
                python = peers / folder / "bin" / "python"
                rates[name].append(run_peer(python, script, peers / "model", sequences, sequences))
    figures = {
        f"tokens_per_s_{sequences}": statistics.median(rates["ours"]),
        f"floor_share_{sequences}": statistics.median(shares),
        f"python_overhead_ms_{sequences}": statistics.median(overheads),
    }
    for name in ("vllm", "transformers"):
        if rates[name]:
            ratios = [ours / theirs for ours, theirs in zip(rates["ours"], rates[name], strict=True)]
            figures[f"ratio_to_{name}_{sequences}"] = statistics.median(ratios)
    return figures


UNITS = {"tokens_per_s": "tok/s", "python_overhead_ms": "ms"}
TARGETS = {"ratio_to_vllm": ">= 0.95", "ratio_to_transformers": ">= 4", "floor_share": ">= 0.7"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="16 sequences once, instead of 16 and 32 three times")
    parser.add_argument("--peers", type=Path, help="folder with ve-vllm, ve-hf and model")
    options = parser.parse_args()
    model = str(options.peers / "model") if options.peers else "smollm2"
    for sequences in (16,) if options.quick else (16, 32):
        for figure, value in measure(sequences, model, options.peers, 1 if options.quick else 3).items():
            name = figure.rpartition("_")[0]
            show(figure, value, UNITS.get(name, "1"), None if options.quick else TARGETS.get(name))


if __name__ == "__main__":
    main()
