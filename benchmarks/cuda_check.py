"""All that needs a GPU to be checked, in under five minutes; skipped with the reason where there is none.

    python benchmarks/cuda_check.py [--quick] [--device cpu]

First, what must be right: the device contract; greedy ids of tiny models in float32 against `generate` on CPU, with
overlap and graphs on and off, prompts in chunks, preempted for want of blocks, with each attention that runs here; ids
drawn from a seed against the CPU device. Exit code 1 if any of it is not. Then a model of 8B-like layers in bf16 under
load: tokens a second, GPU idle share and cancellation lag, with and without overlap, with and without graphs. A table
on stderr at the end. `--device cpu` does the same on the processor, with a small model and without streams and graphs:
it tries out everything but CUDA, and its speeds mean nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from cuda_models import FAMILIES, VOCABULARY, generated, large, tiny
from figures import show
from rich.console import Console
from rich.table import Table
from workload import traffic

from backend.api import Device, Sampling
from backend.config import EngineConfig
from backend.device_kit import check_device
from backend.load import serve_traffic
from backend.serving import AsyncEngine
from backend.torch_device.build_gpu import ATTENTIONS
from backend.torch_device.cuda_device import CudaDevice
from backend.torch_device.device import TorchDevice
from backend.torch_device.modules import UnsupportedModel
from backend.torch_device.where import cuda_missing
from backend.traffic import NONE, Traffic
from bench.metrics import MetricOptions, summarise
from policies.fcfs import FCFS

COUNT = 24  # tokens of each answer whose ids are compared
LENGTHS = (1, 7, 33, 16, 50, 3, 90, 12)


@dataclass(frozen=True)
class Check:
    figure: str
    value: float
    unit: str
    target: str | None = None
    note: str = ""
    right: bool = True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one family, few layers, a quarter of the load")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    options = parser.parse_args()
    missing = cuda_missing()
    if options.device == "cuda" and missing:
        print(f"skipped: needs a GPU, and {missing}")
        return 0
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("backend.torch_device").setLevel(logging.INFO)
    began, checks = time.perf_counter(), []
    for check in all_checks(options.device, options.quick):
        show(check.figure, check.value, check.unit, check.target)
        checks.append(check)
    checks.append(Check("seconds", time.perf_counter() - began, "s", "<= 300"))
    show(checks[-1].figure, checks[-1].value, checks[-1].unit, checks[-1].target)
    Console(stderr=True, width=150).print(_table(checks, options.device))
    return int(any(not check.right for check in checks))


def all_checks(on: str, quick: bool) -> Iterator[Check]:
    yield contract_check(on)
    yield from ids_checks(on, quick)
    yield draws_check(on)
    yield from load_checks(on, quick)


# -- what must be right


def contract_check(on: str) -> Check:
    device = CudaDevice(tiny("llama"), on=on, num_blocks=64, block_size=8, graph_seqs=4, name="contract")
    broken = [finding for finding in check_device(device) if finding.problem]
    note = "; ".join(f"{finding.rule}: {finding.problem}" for finding in broken)
    return Check("contract_rules_broken", len(broken), "1", "<= 0", note, right=not broken)


def ids_checks(on: str, quick: bool) -> Iterator[Check]:
    """Share of the answers that equal `generate` in float32 on CPU, token by token."""
    for family in FAMILIES[:1] if quick else FAMILIES:
        prompts = [np.random.default_rng(n).integers(VOCABULARY, size=n).tolist() for n in LENGTHS]
        alone = tiny(family)
        expected = [generated(alone, prompt, COUNT) for prompt in prompts]
        for graphs in (8, 0):
            for overlap in (True, False):
                name = f"ids_equal_{family}_{'graphs' if graphs else 'eager'}_{'overlap' if overlap else 'sync'}"
                yield _ids(name, on, family, prompts, expected, overlap, graph_seqs=graphs)
    for attention in ATTENTIONS:
        try:
            name = f"ids_equal_llama_{attention}"
            yield _ids(name, on, "llama", prompts, expected, True, attentions=[attention])
        except UnsupportedModel as error:
            print(f"    {attention}: {error}", file=sys.stderr, flush=True)


def _ids(
    name: str,
    on: str,
    family: str,
    prompts: Sequence[list[int]],
    expected: Sequence[list[int]],
    overlap: bool,
    **settings: Any,
) -> Check:
    """Prompts in chunks of at most 40 tokens, on half of the blocks that all need: some are preempted."""
    needed = sum(-(-(len(prompt) + COUNT) // 16) for prompt in prompts)
    device = CudaDevice(tiny(family), on=on, num_blocks=needed // 2, name=name, **{"graph_seqs": 8} | settings)
    answers, preemptions = _served(device, prompts, [Sampling(ignore_eos=True)], overlap)
    return _compared(name, answers, expected, f"{preemptions} preemptions; {device.description}")


def draws_check(on: str) -> Check:
    """Temperature, top-k and top-p, each request with its seed."""
    prompts = [np.random.default_rng(n).integers(VOCABULARY, size=n).tolist() for n in LENGTHS]
    ways: list[dict[str, Any]] = [{}, {"top_k": 5}, {"top_p": 0.8}, {"top_k": 40, "top_p": 0.9}]
    drawn = [Sampling(temperature=0.9, seed=seed, ignore_eos=True, **way) for seed, way in enumerate(ways)]
    expected, _ = _served(TorchDevice(tiny("llama"), num_blocks=60, threads=1), prompts, drawn, True)
    answers, _ = _served(CudaDevice(tiny("llama"), on=on, num_blocks=60, name="draws"), prompts, drawn, True)
    return _compared("draws_equal", answers, expected, "against the CPU device")


def _compared(name: str, answers: Sequence[list[int]], expected: Sequence[list[int]], note: str) -> Check:
    same = float(np.mean([one == other for one, other in zip(answers, expected, strict=True)]))
    return Check(name, same, "1", ">= 1", note, right=same == 1)


def _served(
    device: Device, prompts: Sequence[list[int]], sampling: Sequence[Sampling], overlap: bool
) -> tuple[list[list[int]], int]:
    """The answers, and how often one was preempted. `sampling`: by turns. Shuts the device down."""
    try:
        config = EngineConfig(overlap=overlap, max_num_seqs=8, max_num_batched_tokens=40)
        asked = [(prompt, sampling[i % len(sampling)]) for i, prompt in enumerate(prompts)]
        return asyncio.run(_answers(device, asked, config))
    finally:
        device.shutdown()


async def _answers(
    device: Device, asked: Sequence[tuple[list[int], Sampling]], config: EngineConfig
) -> tuple[list[list[int]], int]:
    async with AsyncEngine(device, FCFS(), config) as engine:

        async def answer(prompt: list[int], sampling: Sampling) -> list[int]:
            return [piece.token async for piece in engine.generate(prompt, COUNT, sampling=sampling)]

        answers = await asyncio.gather(*(answer(prompt, sampling) for prompt, sampling in asked))
        await engine.close(drain=True)
        return answers, int(engine.records().requests["preemptions"].sum())


# -- speed


def load_checks(on: str, quick: bool) -> Iterator[Check]:
    """32 clients in a closed loop, 512 tokens in and 128 out; one in eight leaves after 20 tokens."""
    ran: dict[str, dict[str, Any]] = {}
    for name, overlap, graphs in (("overlap", True, 32), ("sync", False, 32), ("eager", True, 0)):
        device = CudaDevice(
            large(torch.device(on), 4 if quick else 32), on=on, graph_seqs=graphs, name=name, **_pool(on)
        )
        try:
            config = EngineConfig(overlap=overlap, max_num_seqs=32, max_num_batched_tokens=2048)
            serve_traffic(_traffic(32, on), FCFS(), device, config)  # what is compiled and sized only once
            run = serve_traffic(_traffic(64 if quick else 256, on), FCFS(), device, config)
            ran[name] = summarise(run.records, MetricOptions())
            note = device.description
        finally:
            device.shutdown()
            del device
            _forget()
        yield Check(f"tokens_per_s_{name}", ran[name]["output_throughput_all"], "tok/s", None, note)
        yield Check(
            f"gpu_idle_{name}",
            ran[name]["gpu_idle_fraction"],
            "1",
            _target("<= 0.02", on) if name == "overlap" else None,
        )
        yield Check(f"tpot_mean_ms_{name}", ran[name]["mean_tpot_ms"], "ms")
        yield Check(f"exposed_host_s_{name}", ran[name]["exposed_host_time_s"], "s")
        yield Check(f"cancellation_lag_ms_{name}", ran[name]["cancellation_lag_mean_ms"], "ms")
    rates = {name: summary["output_throughput_all"] for name, summary in ran.items()}
    yield Check("ratio_overlap_to_sync", rates["overlap"] / rates["sync"], "1", _target(">= 1", on))
    yield Check("ratio_graphs_to_eager", rates["overlap"] / rates["eager"], "1", _target(">= 1", on))


def _target(target: str, on: str) -> str | None:
    return target if on == "cuda" else None


def _pool(on: str) -> dict[str, int]:
    """On CPU, memory enough; on a GPU what is free."""
    return {"num_blocks": 1024} if on == "cpu" else {}


def _traffic(requests: int, on: str) -> Traffic:
    """All are there at the beginning; lengths are forced."""
    prompt, output = (512, 128) if on == "cuda" else (64, 24)
    fixed = np.ones(requests, dtype=np.int64)
    leaves = np.where(np.arange(requests) % 8 == 7, 20, NONE).astype(np.int64)
    return replace(traffic(fixed * 0, fixed * prompt, fixed * output, concurrency=32), cancel_tokens=leaves)


def _forget() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _table(checks: Sequence[Check], on: str) -> Table:
    place = torch.cuda.get_device_name() if on == "cuda" else "the processor: speeds mean nothing"
    table = Table("figure", "value", "target", "note", title=f"torch {torch.__version__}, {place}")
    for check in checks:
        table.add_row(check.figure, f"{check.value:.4g} {check.unit}", check.target or "", check.note)
    return table


if __name__ == "__main__":
    sys.exit(main())
