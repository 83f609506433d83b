"""At the end of a sweep over predictors: how much of what a perfect one gains do the others recover?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from rich.table import Table

from bench.sweep_table import SweepTable
from bench.terminal import FinishedJob, finished_jobs, print_table

NOTHING, ALL = "constant", "oracle"
LEAST_GAIN = 0.05
"""Of the figure: with less between a constant and the oracle there is nothing to recover, but noise."""


class Figure(NamedTuple):
    title: str
    key: str  # of a summary
    sign: int  # 1: more is better; -1: less is


FIGURES = (
    Figure("output tok/s", "output_throughput", 1),
    Figure("mean E2EL ms", "mean_e2el_ms", -1),
    Figure("p99 E2EL ms", "p99_e2el_ms", -1),
    Figure("p99 TTFT ms", "p99_ttft_ms", -1),
)


class GainsTable(SweepTable):
    def show(self, folder: Path, since: float) -> None:
        show_gains(finished_jobs(folder, since))


def show_gains(jobs: Sequence[FinishedJob]) -> None:
    """One row for each figure under each combination of what was swept, seeds and predictors apart."""
    predictors = list(dict.fromkeys(_predictor(job) for job in jobs))
    if not {NOTHING, ALL} <= set(predictors):
        print(f"no gains: the sweep needs predictor={NOTHING} and predictor={ALL} to compare with")
        return
    others = [name for name in predictors if name not in (NOTHING, ALL)]
    groups = _groups(jobs)
    table = Table(title=f"what a predictor recovers of the oracle's gain over a {NOTHING}", title_justify="left")
    for key, _ in next(iter(groups)):
        table.add_column(key)
    table.add_column("figure")
    for column in (NOTHING, ALL, *(f"{name} recovers" for name in others)):
        table.add_column(column, justify="right")
    for group, members in groups.items():
        for row in _rows(members, others):
            table.add_row(*(value for _, value in group), *row)
    print_table(table, f"of means over seeds; none: the oracle itself gains less than {LEAST_GAIN:.0%}")
    print(f"a prediction takes {', '.join(_costs(jobs, predictors))} ms, off the step path")


def recovers(nothing: float | None, some: float | None, everything: float | None, sign: int) -> float | None:
    """The share, below 0 where a predictor does harm; None where there is no gain to share in."""
    if nothing is None or some is None or everything is None:
        return None
    gain = sign * (everything - nothing)
    return sign * (some - nothing) / gain if gain >= LEAST_GAIN * abs(nothing) else None


def _rows(members: Sequence[FinishedJob], others: Sequence[str]) -> list[list[str]]:
    rows, gained = [], False
    for figure in FIGURES:
        means = {name: _mean(members, name, figure) for name in (NOTHING, ALL, *others)}
        shares = [recovers(means[NOTHING], means[name], means[ALL], figure.sign) for name in others]
        gained = gained or any(share is not None for share in shares)
        cells = [_shown(means[name]) for name in (NOTHING, ALL)]
        rows.append([figure.title, *cells, *("none" if share is None else f"{share:.0%}" for share in shares)])
    return rows if gained else [["all", "", "", *("none" for _ in others)]]


def _groups(jobs: Sequence[FinishedJob]) -> dict[tuple[tuple[str, str], ...], list[FinishedJob]]:
    swept = dict.fromkeys(key for job in jobs for key in job.overrides)
    keys = [
        key for key in swept if key not in ("predictor", "seed") and len({job.overrides.get(key) for job in jobs}) > 1
    ]
    groups: dict[tuple[tuple[str, str], ...], list[FinishedJob]] = {}
    for job in jobs:
        groups.setdefault(tuple((key, job.overrides.get(key, "")) for key in keys), []).append(job)
    return groups


def _mean(members: Sequence[FinishedJob], predictor: str, figure: Figure) -> float | None:
    """Undefined in one run is undefined in the mean."""
    values = [job.summary.get(figure.key) for job in members if _predictor(job) == predictor]
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _costs(jobs: Sequence[FinishedJob], predictors: Sequence[str]) -> list[str]:
    """Wall clock of each predictor."""
    times = {name: [job.timing["predictor_ms"] for job in jobs if _predictor(job) == name] for name in predictors}
    return [f"{name} {fmean(of_jobs):.3f}" for name, of_jobs in times.items()]


def _predictor(job: FinishedJob) -> str:
    return job.overrides.get("predictor", "")


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"
