"""What rows of runs say beside a prompt and a length, read back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from bench.errors import BadInput
from bench.learning.rows import digest_of, rows_of
from bench.learning.runs import FinishedRun
from policies.fcfs import FCFS
from predictors.corpus import make_corpus
from predictors.pairs import BadRows, read_pairs
from traffic_by_hand import run, traffic

ROW = {"prompt": "hello", "prompt_tokens": 3, "tenant": "t", "model": "m", "arrival_s": 1.5, "output_tokens": 9}


def read(path: Path, *rows: dict[str, object]):
    (path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return read_pairs(path / "rows.jsonl")


def test_tenant_arrival_and_cut_are_taken_as_said(tmp_path: Path) -> None:
    rows = read(tmp_path, ROW, {**ROW, "tenant": "u", "capped": True}, {**ROW, "capped": False, "max_tokens": 9})
    assert rows.tenant.tolist() == ["t", "u", "t"]
    assert rows.arrival.tolist() == [1_500_000_000_000] * 3
    assert rows.capped.tolist() == [False, True, True]  # the last is as long as its limit


def test_a_row_without_a_prompt_needs_its_length(tmp_path: Path) -> None:
    assert read(tmp_path, {**ROW, "prompt": None}).text.tolist() == [None]
    with pytest.raises(BadRows, match=r"rows.jsonl:2: no prompt"):
        read(tmp_path, ROW, {"prompt": None, "output_tokens": 9})


@pytest.mark.parametrize("arrival", [-1, "soon", None, 1e30])
def test_an_arrival_that_is_no_time_is_named(arrival: object, tmp_path: Path) -> None:
    with pytest.raises(BadRows, match=r"rows.jsonl:1: arrival_s is .*, not a time in seconds"):
        read(tmp_path, {**ROW, "arrival_s": arrival})


def test_rows_are_told_apart_by_what_they_say_and_not_by_where_they_stand() -> None:
    rows = make_corpus(50, seed=1).rows
    assert digest_of(rows) == digest_of(rows.assign(source="elsewhere"))
    assert digest_of(rows) != digest_of(rows.assign(length=rows.length + 1))
    assert digest_of(rows) != digest_of(rows[::-1])


def served(name: str, *requests: tuple[str, int]) -> FinishedRun:
    """A run that served these prompts, with answers so long."""
    about = {
        "tenant": "t",
        "prompt_tokens": 3,
        "max_tokens": 50,
        "arrival": 0,
        "state": "completed",
        "finish_reason": "stop",
    }
    rows = [
        {"id": str(i), "prompt": text, "output_tokens": length} | about for i, (text, length) in enumerate(requests)
    ]
    return FinishedRun(name, "m", pd.DataFrame(rows))


def test_what_another_run_served_too_counts_once_and_what_one_run_served_twice_counts_twice() -> None:
    once, twice = ("a", 5), ("b", 7)
    rows, replayed = rows_of([served("x", once, twice, twice), served("y", twice, once, twice), served("z", ("a", 6))])
    assert sorted(zip(rows.text, rows.length, rows.source, strict=True)) == [
        ("a", 5, "x"), ("a", 6, "z"), ("b", 7, "x"), ("b", 7, "x"),
    ]  # fmt: skip
    assert replayed == 3


def test_a_table_that_is_none_of_requests_is_refused_by_its_run() -> None:
    with pytest.raises(BadInput, match="here: not the requests of a run: no column"):
        rows_of([FinishedRun("here", "m", make_corpus(5).rows)])


def test_half_a_surrogate_pair_in_a_prompt_does_not_cost_a_run_its_records(tmp_path: Path) -> None:
    work = replace(traffic(n=2), prompts=["half \ud83d", "whole 🙂"])
    path = tmp_path / "requests.parquet"
    run(work, FCFS()).records.requests.to_parquet(path)
    assert pd.read_parquet(path)["prompt"].tolist() == ["half ?", "whole 🙂"]
