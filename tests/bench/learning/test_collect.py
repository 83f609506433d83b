"""`batchyard collect`: rows of finished runs, from their folders or from MLflow."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pandas as pd
import pytest

from predictors.pairs import read_pairs
from tracked import runs_of

RUN = ["workload=corpus", "workload.requests=60", "workload.max_tokens=150"]
UNTRACKED = "tracking=none"
CANCELS = ["workload.client.cancel_probability=0.5", "workload.client.cancel_tokens=5"]


def test_rows_say_what_was_asked_how_long_it_became_and_what_was_cut(say, base: Path) -> None:
    assert say("run", *RUN, *CANCELS, UNTRACKED, "hydra.run.dir=here").code == 0
    told = say("collect", "here", "-o", "below/rows.jsonl.gz")
    assert told.code == 0
    requests = pd.read_parquet(base / "here/requests.parquet")
    rows = read_pairs(base / "below/rows.jsonl.gz")
    assert rows.text.tolist() == requests.prompt.tolist()
    assert rows.length.tolist() == requests.output_tokens.tolist()
    assert rows.arrival.tolist() == requests.arrival.tolist()  # to the picosecond
    assert rows.max_tokens.tolist() == [150] * 60
    cut = (requests.state == "cancelled") | (requests.finish_reason == "length")
    assert rows.capped.tolist() == cut.tolist()
    assert 10 < cut.sum() < 60
    assert f"60 rows from 1 runs: below/rows.jsonl.gz; {cut.sum()} answers were cut" in told.out
    assert "next:  batchyard train data=below/rows.jsonl.gz" in told.out
    line = json.loads(gzip.decompress((base / "below/rows.jsonl.gz").read_bytes()).splitlines()[0])
    assert {"prompt", "model", "source", "tenant", "output_tokens"} <= set(line)
    assert (line["model"], line["source"]) == ("Llama-3.1-8B", "here")


def test_requests_that_several_runs_served_count_once(say, base: Path) -> None:
    assert say("run", "-m", *RUN, UNTRACKED, "policy=fcfs,fair_share", "seed=0,1", "hydra.sweep.dir=sweep").code == 0
    told = say("collect", "sweep", "-o", "rows.jsonl")
    assert "120 rows from 4 runs: rows.jsonl; 120 left out" in told.out
    both = say("collect", "sweep/0", "sweep/1", "-o", "rows.jsonl")
    assert "120 rows from 2 runs" in both.out
    assert set(read_pairs(base / "rows.jsonl").source) == {"sweep/0", "sweep/1"}


def test_runs_without_texts_tell_of_tenants_and_prompt_lengths(say, base: Path) -> None:
    assert say("run", "workload.requests=40", "tracking=none", "hydra.run.dir=here").code == 0
    told = say("collect", "here", "-o", "rows.jsonl")
    assert "40 without a prompt's text" in told.out
    rows = read_pairs(base / "rows.jsonl")
    assert rows.text.isna().all()
    assert set(rows.tenant) == {"chat", "documents", "code"}
    assert (rows.prompt_tokens > 10).all()


def test_a_run_and_a_sweep_are_found_in_mlflow_by_their_ids(say, base: Path) -> None:
    assert say("run", "-m", *RUN, "seed=0,1", "hydra.sweep.dir=sweep").code == 0
    found = runs_of(base)
    [sweep] = [run.info.run_id for run in found if "sweep" in run.data.tags]
    one = next(run.info.run_id for run in found if "sweep" not in run.data.tags)
    assert "60 rows from 1 runs" in say("collect", one, "-o", "one.jsonl").out
    assert "120 rows from 2 runs" in say("collect", sweep, "-o", "both.jsonl").out
    assert say("collect", "sweep", "-o", "folders.jsonl").code == 0
    columns = ["text", "length", "arrival"]
    from_mlflow, from_folders = (read_pairs(base / f"{name}.jsonl")[columns] for name in ("both", "folders"))
    assert sorted(from_mlflow.itertuples(index=False)) == sorted(from_folders.itertuples(index=False))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["nowhere", "-o", "x.jsonl"], ["nowhere", "neither a folder nor"]),
        (["empty", "-o", "x.jsonl"], ["empty", "summary.json"]),
        (["broken", "-o", "x.jsonl"], ["broken", "not what a run leaves"]),
        (["0123456789abcdef0123456789abcdef", "-o", "x.jsonl"], ["0123456789abcdef", "mlflow.db"]),
        (["0" * 32, "-o", "x.jsonl", "--uri", "sqlite:///none.db"], ["no store", "none.db", "--uri"]),
        (["broken", "-o", "x.txt"], ["--output", "x.txt", ".jsonl"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_what_is_no_finished_run_is_refused_in_one_line(
    arguments: list[str], named: list[str], say, base: Path
) -> None:
    (base / "empty").mkdir()
    (base / "broken").mkdir()
    (base / "broken/summary.json").write_text("{}")
    line = say("collect", *arguments).complaint
    assert all(name in line for name in named), line
    assert not (base / "x.jsonl").exists()
    assert not (base / "none.db").exists()
