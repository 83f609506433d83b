"""`batchyard train`: an honest score, a model in the registry, and runs that use it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from bench.learning.config import SplitConfig, TrainConfig
from bench.learning.data import read_data
from bench.learning.rows import write_rows
from predictors.corpus import make_corpus
from predictors.split import prompt_key
from predictors.store import load
from tests.bench.conftest import summary_of
from tracked import client_of

from .conftest import QUICK

TRAIN = ["train", "data=rows.jsonl.gz", *QUICK, "hydra.run.dir=trained"]
PNG = b"\x89PNG"


@pytest.fixture
def rows(base: Path) -> Path:
    """A file of 600 rows."""
    made = make_corpus(600, seed=5, tenants=("plain",)).rows.assign(model="corpus")
    write_rows(made, base / "rows.jsonl.gz")
    return base / "rows.jsonl.gz"


@pytest.mark.usefixtures("rows")
def test_a_training_leaves_a_registered_model_its_figures_and_pictures(say, base: Path) -> None:
    told = say(*TRAIN)
    assert told.code == 0, told.err
    assert "models:/length/1, now models:/length@champion" in told.out
    assert "batchyard run policy=multi_bin predictor=learned predictor.model=models:/length@champion" in told.out
    figures = json.loads((base / "trained/figures.json").read_text())
    assert set(figures) == {"learned", "TF-IDF + ridge", "tenant average", "prompt length", "median", "cost"}
    assert figures["learned"]["tau"] > 0.6 > 0.2 > figures["prompt length"]["tau"]
    assert figures["learned"]["mae"] < figures["median"]["mae"]
    pictures = sorted((base / "trained/plots").iterdir())
    assert [path.name for path in pictures] == ["calibration.png", "error_by_length.png", "predicted_vs_true.png"]
    assert all(path.read_bytes().startswith(PNG) for path in pictures)
    assert load(base / "trained/model").config.rounds == 40
    assert yaml.safe_load((base / "trained/config.yaml").read_text())["data"] == "rows.jsonl.gz"

    client = client_of(base)
    version = client.get_model_version_by_alias("length", "champion")
    run = client.get_run(version.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.metrics["score/tau"] == figures["learned"]["tau"]
    assert run.data.metrics["median/mae"] == figures["median"]["mae"]
    assert run.data.metrics["cost/fit_s"] > 0
    assert run.data.params["predictor"] == "learned"
    contexts = {used.tags[0].value: json.loads(used.dataset.profile)["rows"] for used in run.inputs.dataset_inputs}
    assert set(contexts) == {"training", "test"}
    assert sum(contexts.values()) == 600
    kept = {artifact.path for artifact in client.list_artifacts(version.run_id, "model")}
    assert kept == {"model/model.skops", "model/model.json"}


@pytest.mark.usefixtures("rows")
def test_runs_take_the_alias_wherever_it_points(say, base: Path) -> None:
    assert say(*TRAIN).code == 0
    run = ["run", "workload=corpus", "workload.requests=40", "policy=multi_bin", "predictor=learned"]
    champion = "predictor.model=models:/length@champion"
    assert say(*run, champion, "hydra.run.dir=first").code == 0
    assert say(*TRAIN, "predictor.objective=rank").code == 0
    assert say(*run, champion, "tracking=none", "hydra.run.dir=second").code == 0
    assert say(*run, "predictor.model=models:/length/1", "tracking=none", "hydra.run.dir=third").code == 0
    models = [summary_of(base / name)["predictor"]["model"] for name in ("first", "second", "third")]
    assert models == ["models:/length/1", "models:/length/2", "models:/length/1"]
    [tracked] = client_of(base).search_runs(["1", "2"], "tags.predictor_model = 'models:/length/1'")
    assert len(tracked.data.tags["predictor_model_hash"]) == 16
    line = say(*run, "predictor.model=models:/length@second", "tracking=none").complaint
    assert all(name in line for name in ("models:/length@second", "models:/length@champion")), line


@pytest.mark.usefixtures("rows")
def test_without_mlflow_the_folder_is_what_to_use(say, base: Path) -> None:
    told = say(*TRAIN, "tracking=none")
    assert told.code == 0, told.err
    assert f"predictor.model={base}/trained/model" in told.out
    run = ["run", "workload=corpus", "workload.requests=40", "predictor=learned", "tracking=none"]
    assert say(*run, "predictor.model=trained/model").code == 0


def test_no_prompt_is_on_both_sides_of_a_split(rows: Path, base: Path) -> None:
    for by in ("conversation", "prompt", "time"):
        data = read_data(TrainConfig(data="rows.jsonl.gz", split=SplitConfig(by=by)), base)
        assert not {prompt_key(text) for text in data.train.text} & {prompt_key(text) for text in data.test.text}
        assert 60 < len(data.test) < 200
        if by == "time":
            assert data.train.arrival.max() < data.test.arrival.min()


def test_files_are_put_together_and_a_test_file_is_taken_as_it_is(rows: Path, base: Path) -> None:
    write_rows(make_corpus(150, seed=6).rows.assign(model="corpus"), base / "more.jsonl")
    data = read_data(TrainConfig(data=["rows.jsonl.gz", "more.jsonl"]), base)
    assert len(data.train) + len(data.test) == 750
    assert set(data.train.tenant) == {"plain", "terse", "chatty"}


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["test=rows.jsonl.gz"], ["test", "600 of 600", "also in training"]),
        (["predictor.features=[text,length]"], ["predictor.features", "'length'", "not known at arrival"]),
        (["predictor=constant"], ["predictor", "learns nothing", "learned_rank"]),
        (["predictor.model=models:/length@champion"], ["predictor.model", "leave it out"]),
        (["data=nowhere.jsonl"], ["data", "nowhere.jsonl", "No such file"]),
        (["data=3"], ["data", "3"]),
        (["split.by=row"], ["split.by", "'row'", "conversation"]),
        (["split.test=1"], ["split.test", "1"]),
        (["split.test=0.9"], ["data", "too few", "100"]),
        (["corpus_rows=0", "data=corpus"], ["corpus_rows", "0"]),
        (["tracking.kind=paper"], ["tracking.kind", "'paper'"]),
        (["frob=1"], ["frob"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_what_cannot_be_trained_is_refused_in_one_line(arguments: list[str], named: list[str], say, base: Path) -> None:
    own = {argument.split("=")[0] for argument in arguments} | (
        {"predictor"} if "predictor=constant" in arguments else set()
    )
    kept = [a for a in [*TRAIN, "tracking=none"] if a.split("=")[0] not in own and not a.startswith("predictor.")]
    line = say(*kept, *(a for a in arguments)).complaint
    assert all(name in line for name in named), line
    assert not (base / "trained/model").exists()
