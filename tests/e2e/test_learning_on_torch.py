"""From a model's answers to a predictor that serves the same model: run, collect, train, run. The model is tiny."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from bench.cli import main
from predictors.pairs import read_pairs
from tests.bench.conftest import summary_of
from tests.e2e.test_torch_run import model, on_torch  # noqa: F401
from tracked import client_of

TRAFFIC = [  # lengths are forced, so that there is something to learn of a model of random weights
    "workload=corpus", "workload.rate=inf", "+workload.tenants={short:{typical_max:16}}", "workload.max_tokens=24",
]  # fmt: skip


def test_collect_train_and_serve_with_multi_bin_by_the_registrys_champion(
    on_torch: list[str],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    run = ["run", *on_torch, *TRAFFIC]
    answers = [*run, "workload.requests=150", "tracking=none", "hydra.run.dir=answers"]
    assert main(answers) == 0, capsys.readouterr().err
    assert main(["collect", "answers", "-o", "rows.jsonl.gz"]) == 0
    rows = read_pairs(tmp_path / "rows.jsonl.gz")
    assert len(rows) == 150
    assert 0 < rows.capped.sum() < 60  # at 24 tokens
    assert main(["train", "data=rows.jsonl.gz", "predictor.rounds=20"]) == 0, capsys.readouterr().err
    champion = client_of(tmp_path).get_model_version_by_alias("length", "champion")

    served = ["policy=multi_bin", "predictor=learned", "predictor.model=models:/length@champion", "seed=1"]
    assert main([*run, *served, "workload.requests=40", "hydra.run.dir=served"]) == 0, capsys.readouterr().err
    summary = summary_of(tmp_path / "served")
    assert (summary["completed"], summary["oracle"], summary["device_kind"]) == (40, False, "cpu")
    counts = summary["predictor"]
    assert counts["model"] == f"models:/length/{champion.version}"
    assert counts["errors"] == 0
    assert counts["predictions"] > 40  # some outran theirs
    requests = pd.read_parquet(tmp_path / "served/requests.parquet")
    assert requests["predicted_tokens"].between(1, 24).all()
    assert requests["predicted_tokens"].nunique() > 5
    assert set(requests["prompt"]) - set(rows.text)  # other prompts than it learnt from
