"""Rows to learn from and rows to score on, no prompt on both sides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from bench.errors import BadInput, named
from bench.learning.config import TrainConfig
from predictors.corpus import make_corpus
from predictors.pairs import read_pairs
from predictors.split import check_split, split_by_prompt, split_by_time

CORPUS = "corpus"
SPLITS = ("conversation", "prompt", "time")


@dataclass(frozen=True)
class Data:
    train: pd.DataFrame  # rows as predictors.pairs has them
    test: pd.DataFrame
    name: str
    source: str


def read_data(config: TrainConfig, base: Path) -> Data:
    """Relative paths start at `base`. Raises BadInput, naming the key, and file and line where one is wrong.

    Raises it too where a prompt of the test rows is one of the training rows: such a score would be of memory.
    """
    files = _files(config.data)
    source = CORPUS if files == [CORPUS] else ", ".join(str(base / file) for file in files)
    rows = pd.concat([_rows(file, "data", config, base) for file in files], ignore_index=True)
    if config.test is None:
        train, test = _split(rows, config)
    else:
        train, test = rows, _rows(config.test, "test", config, base)
    with named("split" if config.test is None else "test"):
        check_split(train, test)
    if not len(test) or test.capped.all():
        raise BadInput("split: no row with a whole answer is left to score on: give more rows, or split by prompt")
    return Data(train, test, " ".join(Path(file).name for file in files), source)


def _files(data: object) -> list[str]:
    if isinstance(data, str) and data:
        return [data]
    if isinstance(data, list) and data and all(isinstance(file, str) for file in data):
        return list(data)
    raise BadInput(f"data: expected corpus, a file of rows or a list of files, got {data!r}")


def _rows(file: str, key: str, config: TrainConfig, base: Path) -> pd.DataFrame:
    with named(key):
        if file == CORPUS:
            return _corpus(config.corpus_rows, config.corpus_noise)
        return read_pairs(base / file, _caps(config.caps))


def _corpus(rows: int, noise: float) -> pd.DataFrame:
    if not 1 <= rows <= 10**7:
        raise BadInput(f"corpus_rows: {rows} is not between 1 and 10,000,000")
    if not 0 <= noise <= 5:
        raise BadInput(f"corpus_noise: {noise:g} is not between 0 and 5")
    return make_corpus(rows, noise=noise).rows


def _caps(caps: Mapping[str, int]) -> Mapping[str, int]:
    for model, cap in caps.items():
        if cap < 1:
            raise BadInput(f"caps.{model}: {cap} is not >= 1")
    return caps


def _split(rows: pd.DataFrame, config: TrainConfig) -> tuple[pd.DataFrame, pd.DataFrame]:
    split = config.split
    if split.by not in SPLITS:
        raise BadInput(f"split.by: {split.by!r} is none of {', '.join(SPLITS)}")
    if not 0 < split.test < 1:
        raise BadInput(f"split.test: {split.test:g} is not > 0 and < 1")
    with named("split"):
        if split.by == "time":
            return split_by_time(rows, split.test)
        return split_by_prompt(rows, split.test, split.seed, split.by)
