"""From a workload's config to traffic: the entry point."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from backend.traffic import Traffic
from bench.errors import BadInput
from bench.traces.files import sha256
from bench.traces.formats import FORMATS
from bench.traces.reading import Notes
from bench.traces.select import select
from bench.traffic.checks import check_instructions, check_synthetic, check_trace
from bench.traffic.config import InstructionsConfig, SyntheticConfig, TraceConfig, WorkloadConfig
from bench.traffic.instructed import instruct
from bench.traffic.replay import replay
from bench.traffic.synthetic import synthesize


@dataclass(frozen=True)
class Built:
    traffic: Traffic
    notes: Notes
    """What became of a trace's rows: rows = requests + those skipped, failed_in_trace, outside_window, not_sampled,
    dropped and past_limit. `requests` is there for every workload."""
    sha256: str | None = None
    """Of the trace file."""


def check_workload(config: WorkloadConfig) -> None:
    """Refuse what makes no sense, without reading or drawing anything."""
    if isinstance(config, TraceConfig):
        check_trace(config, FORMATS)
    elif isinstance(config, InstructionsConfig):
        check_instructions(config)
    else:
        check_synthetic(config)


def build_traffic(config: WorkloadConfig, seed: int, max_model_len: int, root: Path) -> Built:
    """All requests of a run, the same for the same arguments in every process.

    Relative paths start at `root`; `max_model_len` (tokens) is what `over_limit` of a trace refers to.
    Raises BadInput, naming the config key or file and line.
    """
    check_workload(config)
    if seed < 0:
        raise BadInput(f"seed: {seed} is not >= 0")
    if max_model_len < 2:
        raise BadInput(f"max_model_len: {max_model_len} leaves no room for a prompt and an answer")
    if not isinstance(config, TraceConfig):
        traffic = (
            synthesize(config, seed, root) if isinstance(config, SyntheticConfig) else instruct(config, seed, root)
        )
        return Built(traffic, {"requests": len(traffic)})
    path = root / (config.path or "")
    loaded = FORMATS[config.format or ""](path, config.strict, seed)
    selected = select(loaded, config, seed, max_model_len)
    traffic = replay(selected.rows, config, seed)
    return Built(traffic, selected.notes | {"requests": len(traffic)}, sha256(path))
