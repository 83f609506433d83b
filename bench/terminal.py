"""What a person sees: a bar while a run works, one table when it has ended."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import yaml
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench.output import ERROR, SUMMARY, read_summary, read_timing

ProgressCallback = Callable[[int, int], None]

OVERRIDES = Path(".hydra") / "overrides.yaml"
PLAIN_WIDTH = 140  # where the output is a file or a pipe, nothing is cut short


class Figure(NamedTuple):
    title: str
    value: Callable[[Mapping[str, Any]], float | None]
    format: str


class FinishedJob(NamedTuple):
    overrides: Mapping[str, str]
    summary: Mapping[str, Any]
    timing: Mapping[str, float]


def _worst_tenant(summary: Mapping[str, Any]) -> float | None:
    values = [tenant.get("p99_ttft_ms") for tenant in summary["tenants"].values()]
    return max((value for value in values if value is not None), default=None)


FIGURES = (
    Figure("output tok/s", lambda s: s.get("output_throughput"), "{:,.0f}"),
    Figure("p99 TTFT ms", lambda s: s.get("p99_ttft_ms"), "{:,.0f}"),
    Figure("worst tenant p99 TTFT ms", _worst_tenant, "{:,.0f}"),
    Figure("service difference", lambda s: s.get("max_service_difference"), "{:,.0f}"),
    Figure("GPU idle %", lambda s: _percent(s.get("gpu_idle_fraction")), "{:.1f}"),
)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


@contextmanager
def progress(label: str, *, shown: bool) -> Iterator[ProgressCallback | None]:
    """A bar of requests that have ended, on the terminal of a person; None anywhere else."""
    console = Console(stderr=True)
    if not (shown and console.is_terminal):
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label or "run", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def show_run(summary: Mapping[str, Any], folder: Path) -> None:
    table = Table(title="run", title_justify="left")
    _figure_columns(table)
    table.add_row(*_cells([summary]))
    print_table(table, f"{_counts(summary)}   {folder}")


def show_sweep(folder: Path, since: float) -> None:
    """One row for each combination swept, averaged over seeds. Only jobs that ended after `since` (Unix time) count."""
    jobs = finished_jobs(folder, since)
    failed = len(_written(folder, ERROR, since))
    notes = [f"{failed} failed: see {folder}/*/{ERROR}"] if failed else []
    keys = _varying([job.overrides for job in jobs])
    rows: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for job in jobs:
        rows.setdefault(tuple(job.overrides.get(key, "") for key in keys), []).append(job.summary)
    table = Table(title="sweep", title_justify="left")
    for key in keys:
        table.add_column(key)
    table.add_column("runs", justify="right")
    _figure_columns(table)
    for values, summaries in rows.items():
        table.add_row(*values, str(len(summaries)), *_cells(summaries))
    if any(len(summaries) > 1 for summaries in rows.values()):
        notes.insert(0, "means over runs")
    print_table(table if rows else None, "   ".join([*notes, str(folder)]))


def finished_jobs(folder: Path, since: float) -> list[FinishedJob]:
    """The jobs of a sweep that ended after `since` (Unix time)."""
    folders = [path.parent for path in _written(folder, SUMMARY, since)]
    return [FinishedJob(_overrides(each), read_summary(each), read_timing(each)) for each in folders]


def _written(folder: Path, name: str, since: float) -> list[Path]:
    found = [path for path in folder.glob(f"*/{name}") if path.stat().st_mtime >= since]
    return sorted(found, key=lambda path: (len(path.parent.name), path.parent.name))


def _overrides(folder: Path) -> dict[str, str]:
    given: list[str] = yaml.safe_load((folder / OVERRIDES).read_text(encoding="utf-8")) or []
    return {key.lstrip("+"): value for key, _, value in (override.partition("=") for override in given)}


def _varying(jobs: Sequence[Mapping[str, str]]) -> list[str]:
    """What was swept, seeds apart: they are what is averaged over."""
    keys = dict.fromkeys(key for overrides in jobs for key in overrides)
    return [key for key in keys if key != "seed" and len({overrides.get(key) for overrides in jobs}) > 1]


def _figure_columns(table: Table) -> None:
    for figure in FIGURES:
        table.add_column(figure.title, justify="right")


def _cells(summaries: Sequence[Mapping[str, Any]]) -> list[str]:
    return [_mean(figure, summaries) for figure in FIGURES]


def _mean(figure: Figure, summaries: Sequence[Mapping[str, Any]]) -> str:
    """Undefined in one run is undefined in the mean: leaving that run out would compare unlike things."""
    values = [figure.value(summary) for summary in summaries]
    known = [value for value in values if value is not None]
    return figure.format.format(fmean(known)) if len(known) == len(values) else "–"


def _counts(summary: Mapping[str, Any]) -> str:
    states = ("completed", "cancelled", "rejected", "failed", "unfinished")
    return ", ".join(f"{summary[state]:,} {state}" for state in states if state == "completed" or summary.get(state))


def print_table(table: Table | None, caption: str) -> None:
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    if table is not None:
        console.print(table)
    console.print(caption, highlight=False, soft_wrap=True)
