"""`predictor=learned` in a run: where its model comes from, what it is asked, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kendalltau

from predictors.store import ABOUT
from tests.bench.conftest import Batchyard, summary_of

CORPUS = ["workload=corpus", "predictor=learned"]
PROBE = """
from policies.multi_bin import MultiBin

class Probe(MultiBin):
    def on_prediction(self, request, view):
        with open("asked.txt", "a") as file:
            print(request.id, request.output_tokens, request.prediction.expected, file=file)
        super().on_prediction(request, view)
"""


def requests_of(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder / "requests.parquet")


def test_it_learns_from_the_corpus_once_and_says_so(
    batchyard: Batchyard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHYARD_CACHE", str(tmp_path / "cache"))
    first = batchyard(*CORPUS, "predictor.rounds=20", "hydra.run.dir=a")
    assert first.code == 0, first.err
    [line] = first.err.splitlines()
    assert "predictor.model=corpus" in line
    assert batchyard(*CORPUS, "predictor.rounds=20", "hydra.run.dir=b").err == ""
    assert (tmp_path / "a/summary.json").read_bytes() == (tmp_path / "b/summary.json").read_bytes()
    summary = summary_of(tmp_path / "a")
    assert summary["oracle"] is False
    assert summary["predictor"]["model"] == "corpus"


def test_predictions_order_the_answers_and_are_off_by_no_more_than_nobody_can_foresee(
    batchyard: Batchyard, model: Path, tmp_path: Path
) -> None:
    run = [*CORPUS, f"predictor.model={model}", "policy=multi_bin", "workload.requests=600"]
    assert batchyard(*run, "hydra.run.dir=here", small=False).code == 0
    requests = requests_of(tmp_path / "here")
    said, true = requests["predicted_tokens"], requests["output_tokens"]
    assert kendalltau(said, true).statistic > 0.68  # of 0.75 that the noise leaves
    assert np.mean(true > said) == pytest.approx(0.5, abs=0.07)  # `expected` is the median
    assert np.mean(true <= requests["predicted_upper"] + 1) == pytest.approx(0.9, abs=0.05)


def test_whoever_outruns_a_prediction_gets_another_beyond_what_was_made(
    batchyard: Batchyard, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "probe.py").write_text(PROBE)
    run = [*CORPUS, f"predictor.model={model}", "policy._target_=probe.Probe", "workload.requests=300"]
    assert batchyard(*run, "hydra.run.dir=here", small=False).code == 0
    asked = pd.read_csv(tmp_path / "asked.txt", sep=" ", names=["id", "made", "expected"], dtype={"id": str})
    first, later = asked[asked["made"] == 0], asked[asked["made"] > 0]
    requests = requests_of(tmp_path / "here").set_index("id")
    outran = requests.index[requests["output_tokens"] > requests["predicted_tokens"] + 1]
    assert len(first) == 300
    assert set(outran) <= set(later["id"])
    assert (later["expected"] >= later["made"] + 1).all()
    assert (later.groupby("id")["expected"].apply(lambda said: said.is_monotonic_increasing)).all()
    # half of those that outran a median outrun the next one, and so on: one more prediction for each request
    assert len(later) / 300 == pytest.approx(1, abs=0.3)
    counts = summary_of(tmp_path / "here")["predictor"]
    assert (counts["predictions"], counts["clipped"], counts["errors"], counts["fallbacks"]) == (len(asked), 0, 0, 0)


def test_results_are_the_same_with_the_jump_off(batchyard: Batchyard, model: Path, tmp_path: Path) -> None:
    run = [*CORPUS, f"predictor.model={model}", "policy=ssjf", "workload.requests=150", "workload.rate=200"]
    for folder, jump in (("a", "true"), ("b", "false")):
        assert batchyard(*run, f"hydra.run.dir={folder}", f"backend.jump={jump}", small=False).code == 0
    assert (tmp_path / "a/summary.json").read_bytes() == (tmp_path / "b/summary.json").read_bytes()


@pytest.mark.parametrize("policy", ["multi_bin", "ssjf"])
def test_knowing_more_means_less_padding(policy: str, batchyard: Batchyard, model: Path, tmp_path: Path) -> None:
    run = ["workload=corpus", "workload.requests=256", "workload.rate=inf", "suite=static", "engine.max_num_seqs=16"]
    speed = {}
    for predictor in ("constant", "learned", "oracle"):
        own = [f"predictor.model={model}"] if predictor == "learned" else []
        told = batchyard(*run, f"policy={policy}", f"predictor={predictor}", *own, "hydra.run.dir=here", small=False)
        assert told.code == 0, told.err
        speed[predictor] = summary_of(tmp_path / "here")["output_throughput"]
    assert 1.2 * speed["constant"] < speed["learned"] < speed["oracle"]


def test_the_predictors_own_time_is_told_apart_from_what_is_reproducible(
    batchyard: Batchyard, model: Path, tmp_path: Path
) -> None:
    assert batchyard(*CORPUS, f"predictor.model={model}", "hydra.run.dir=here").code == 0
    timing = json.loads((tmp_path / "here/timing.json").read_text())
    predictions = summary_of(tmp_path / "here")["predictor"]["predictions"]
    assert 0 < timing["predictor_s"] < timing["total_s"]
    assert timing["predictor_ms"] == pytest.approx(1e3 * timing["predictor_s"] / predictions)
    assert batchyard("predictor=none", "hydra.run.dir=none").code == 0
    assert "predictor_s" not in json.loads((tmp_path / "none/timing.json").read_text())


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["predictor.model=nowhere"], ["predictor.model", "nowhere", "no batchyard length predictor"]),
        (
            ["predictor.model=models:/length@champion"],
            ["models:/length@champion", "no", "mlflow.db", "batchyard train"],
        ),
        (["predictor.model=models:/length"], ["models:/length", "models:/NAME@ALIAS"]),
        (["predictor.model=older"], ["predictor.model", "older", "format version 0"]),
        (["predictor.model={model}", "predictor=learned_rank"], ["predictor.objective", "rank", "length"]),
        (["predictor.model={model}", "predictor.quantile=0.5"], ["predictor.quantile", "0.5", "0.9"]),
        (["predictor.model={model}", "workload=three_tenants"], ["workload=three_tenants", "no texts", "corpus"]),
        (
            ["predictor.features=[text,output_tokens]"],
            ["predictor.features", "'output_tokens'", "not known at arrival"],
        ),
        (["predictor.features=[embedding]"], ["predictor.embedder"]),
        (["predictor.embedder=no_such_package"], ["predictor.embedder", "no_such_package"]),
        (["predictor.quantile=high"], ["predictor.quantile", "'high'"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_what_cannot_be_used_is_refused_in_one_line(
    arguments: list[str],
    named: list[str],
    batchyard: Batchyard,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    older = Path(shutil.copytree(model, tmp_path / "older"))
    (older / ABOUT).write_text(json.dumps(json.loads((older / ABOUT).read_text()) | {"version": 0}))
    own = {argument.split("=")[0] for argument in arguments}
    kept = [argument for argument in CORPUS if argument.split("=")[0] not in own]
    line = batchyard(*kept, *(argument.format(model=model) for argument in arguments)).complaint
    assert all(name in line for name in named), line
    assert not (tmp_path / "runs/mlflow.db").exists()  # asking for a model makes no store
