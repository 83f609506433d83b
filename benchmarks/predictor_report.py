"""The figures of predictor_quality.py as a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

Figures = Mapping[str, Mapping[str, float]]

BASELINES = ("median", "prompt length", "tenant average", "TF-IDF + ridge")
TEXT = ("learned", "learned, rank", "learned, class")
EMBEDDED = ("embeddings", "text + embeddings")
SETS = (
    ("GPT-4 mix", "prompt"),
    ("GPT-4 mix", "conversation"),
    ("MT-bench-101", "prompt"),
    ("MT-bench-101", "conversation"),
    ("GPTeacher", "prompt"),
    ("GSM8K", "prompt"),
    ("MMLU-Pro", "prompt"),
    ("arena-hard", "prompt"),
)
AIMS = {"GPT-4 mix": 0.60, "MT-bench-101": 0.60, "GSM8K": 0.45, "MMLU-Pro": 0.55}
REQUIRED = 0.03
QUANTILE = 0.9
MOST_CALIBRATION = 5_000
MANY_PROMPTS = 2_000


def report(figures: Figures, seeds: int) -> str:
    parts = [_head(seeds), _order(figures), _sizes(figures), _bins(figures), _bounds(figures), _controls(figures)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(seeds: int) -> str:
    return f"""# How well lengths are predicted

Made by `python benchmarks/predictor_quality.py` from the pairs in `../shared/data/pairs` (sources and licences: its
README); mean ± standard deviation over {seeds} seeds, each with another 20% of the prompts held out for the test. A
set of several models is predicted by one predictor that is told the model as the tenant; τ is the mean over models.
"by conversation" keeps all turns of a conversation on one side: the stricter split, since a later turn quotes the
earlier ones. Lengths are in tokens of one tokenizer for all."""


def _order(figures: Figures) -> str:
    rows = []
    for name, by in SETS:
        base = _values(figures, name, by, "TF-IDF + ridge", "tau")
        if not base:
            continue
        learned = _values(figures, name, by, "learned", "tau")
        gain = np.mean(learned) - np.mean(base)
        aim = AIMS.get(name)
        rows.append(
            [
                _set(name, by),
                *(_mean(_values(figures, name, by, model, "tau")) for model in (*BASELINES[1:], *TEXT, *EMBEDDED)),
                f"{gain:+.3f}",
                "" if aim is None else f"{aim:.2f} {'yes' if np.mean(learned) >= aim else 'no'}",
            ]
        )
    head = ["set", *BASELINES[1:], *TEXT, *EMBEDDED, "learned − TF-IDF", "aim"]
    return f"## Order: Kendall's τ_b\n\n{_table(head, rows)}"


def _sizes(figures: Figures) -> str:
    rows = []
    for name, by in SETS:
        for figure in ("mae", "pinball"):
            values = [_mean(_values(figures, name, by, model, figure), 1) for model in (*BASELINES, *TEXT, *EMBEDDED)]
            if values[0]:
                rows.append([_set(name, by), "MAE" if figure == "mae" else "pinball, 90%", *values])
    head = ["set", "tokens", *BASELINES, *TEXT, *EMBEDDED]
    return f"## Size: mean absolute error of `expected`, pinball loss of `upper`\n\n{_table(head, rows)}"


def _bins(figures: Figures) -> str:
    rows = []
    for name, by in SETS:
        cells = []
        for model in ("median", "TF-IDF + ridge", "learned", "learned, class"):
            for k in (4, 5):
                right = _values(figures, name, by, model, f"bins_{k}")
                near = _values(figures, name, by, model, f"bins_{k}_near")
                cells.append(f"{_mean(right)} / {np.mean(near):.3f}" if right else "")
        if cells[0]:
            rows.append([_set(name, by), *cells])
    models = ("median", "TF-IDF + ridge", "learned", "learned, class")
    head = ["set", *(f"{model}, {k}" for model in models for k in (4, 5))]
    return f"""## Bins: share in the right one of 4 or 5 / within one of it

Bins hold equally many true lengths. Published, on other data: 0.63 of 4 (multi-bin's BERT), 0.590 / 0.924 of 5 with
τ .635 (SSJF's BERT on LMSYS-Chat).

{_table(head, rows)}"""


def _bounds(figures: Figures) -> str:
    rows = []
    for name, by in SETS:
        runs = _runs(figures, name, by, "learned")
        if not runs:
            continue
        prompts = runs[0]["rows"]
        allowed = 2 * np.mean([_two_sided_error(run) for run in runs])
        covered = [run["coverage"] for run in runs]
        wanted = "88–92%" if prompts >= MANY_PROMPTS else f"90 ± {100 * allowed:.1f}%"
        within = abs(np.mean(covered) - QUANTILE) <= (0.02 if prompts >= MANY_PROMPTS else allowed)
        rows.append(
            [
                _set(name, by),
                f"{prompts:.0f}",
                f"{np.mean([run['capped'] for run in runs]):.0f}",
                _percent(covered),
                ", ".join(f"{100 * c:.1f}" for c in covered),
                wanted,
                "yes" if within else "no",
                _percent([run["coverage_at_least"] for run in runs]),
            ]
        )
    head = ["set", "test rows", "cut", "coverage", "each seed", "wanted", "within", "of all rows, cut ones at least"]
    return f"""## Bounds: share of true lengths under `upper` at 90%

Cut rows (at a cap) are left out of the coverage, and counted. Where there are fewer than 2,000 test rows, two standard
errors of calibration and test are allowed, clustered by prompt. The last column counts a cut row as covered where
`upper` reaches its cap.

{_table(head, rows)}"""


def _controls(figures: Figures) -> str:
    lines = []
    shuffled = _values(figures, "MT-bench-101", "prompt", "shuffled lengths", "tau")
    if shuffled:
        lines.append(f"- trained on shuffled lengths (MT-bench-101): τ {_mean(shuffled)}")
    learned = _values(figures, "duplicates", "row", "learned", "mae")
    if learned:
        median = _values(figures, "duplicates", "row", "median", "mae")
        lines.append(
            f"- 100 prompts × 10 with random lengths: MAE {_mean(learned, 1)}, the median's {_mean(median, 1)}"
        )
    for key, run in figures.items():
        name, source, *_ = key.split(" | ")
        if source.startswith("from "):
            lines.append(f"- trained on {source[5:]}, tested on {name}: τ {run['tau']:.3f}, MAE {run['mae']:.1f}")
    return "## Controls, and other sources\n\n" + "\n".join(lines) if lines else ""


def _two_sided_error(run: Mapping[str, float]) -> float:
    """Standard error of calibration and test together: the same variance a row, over both numbers of rows."""
    calibration = min(run["training_rows"], MOST_CALIBRATION)
    return run["coverage_error"] * math.sqrt(1 + run["rows"] / calibration)


def _runs(figures: Figures, name: str, by: str, model: str) -> list[Mapping[str, float]]:
    start = f"{name} | {by} | {model} | "
    return [run for key, run in figures.items() if key.startswith(start)]


def _values(figures: Figures, name: str, by: str, model: str, figure: str) -> list[float]:
    return [run[figure] for run in _runs(figures, name, by, model)]


def _set(name: str, by: str) -> str:
    return name if by == "prompt" else f"{name}, by {by}"


def _mean(values: Sequence[float], digits: int = 3) -> str:
    return f"{np.mean(values):.{digits}f} ± {np.std(values):.{digits}f}" if values else ""


def _percent(values: Sequence[float]) -> str:
    return f"{100 * np.mean(values):.1f} ± {100 * np.std(values):.1f}%"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
