"""Bad input: one line that names the key, exit code 2, no traceback, and nothing that was there is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.conftest import Batchyard

REFUSED = [
    # the schemas: a wrong type or key
    (["seed=abc"], ["seed", "'abc'"]),
    (["engine.overlap=maybe"], ["engine.overlap", "'maybe'"]),
    (["engine.max_num_sqs=8"], ["engine.max_num_sqs"]),
    (["+engine.extra=1"], ["engine.extra"]),
    (["workload.tenants.chat.share=much"], ["workload.tenants.chat.share", "'much'"]),
    (["workload.prompt.meen=3"], ["workload.prompt.meen"]),
    (["backend.cost.step_ms=3"], ["backend.cost.step_ms", "RooflineCostConfig"]),
    (["backend/cost=constant", "backend.cost.step_ms=x"], ["backend.cost.step_ms", "'x'"]),
    (["slo.default.ttft_ms=soon"], ["slo.default.ttft_ms", "'soon'"]),
    (["nonsense=1"], ["nonsense"]),
    # the groups
    (["policy=nope"], ["policy/nope", "fcfs", "fair_share"]),
    (["experiment=nope"], ["experiment/nope", "demo"]),
    # the values
    (["engine.max_num_seqs=0"], ["engine.max_num_seqs", "0"]),
    (["engine.batching=dynamical"], ["engine.batching", "'dynamical'", "dynamic"]),
    (["engine.max_model_len=999999"], ["engine.max_model_len", "999999", "131072"]),
    (["backend.gpu=K80"], ["backend.gpu", "'K80'", "H100"]),
    (["backend.model=GPT"], ["backend.model", "'GPT'", "Llama-3.1-8B"]),
    (["backend.gpu=A10G", "backend.gpu_memory_utilization=0.5"], ["backend", "A10G", "16.1 GB"]),
    (["backend.cost.memory_efficiency=2"], ["backend.cost", "memory_efficiency=2"]),
    (["workload.rate=0"], ["workload.rate", "0"]),
    (["workload=azure_conv"], ["workload.path"]),
    (["workload=azure_conv", "workload.path=no.csv"], ["workload", "no.csv", "no such file"]),
    (["seed=-1"], ["seed", "-1"]),
    (["slo.default.tpot_ms=0"], ["slo.default", "tpot_ms=0"]),
    (["slo=interactive", "workload.tenants.chat.slo=gold"], ["slo.gold"]),
    (["tracking.kind=paper"], ["tracking.kind", "'paper'", "mlflow"]),
    (["metrics.warmup_requests=100"], ["warmup_requests"]),
    (["objective=beauty"], ["objective=beauty"]),
    # real time
    (["workload=instructions"], ["workload=instructions", "backend=simulated", "backend=torch"]),
    (["workload=instructions", "backend=realtime"], ["workload=instructions", "backend=realtime", "backend=torch"]),
    (["workload=instructions", "workload.tenants.chat.typical_max=0"], ["workload.tenants.chat.typical_max", "0"]),
    (["workload=instructions", "workload.tenants.chat.typical_min=90"], ["workload.tenants.chat", "90 .. 40"]),
    (["backend=realtime", "prediction.latency_s=1"], ["prediction.latency_s"]),
    (["backend=realtime", "backend.host.plan_ms=1"], ["backend.host"]),
    # policies and predictors
    (["+policy.depth=3"], ["policy.depth", "FCFS", "'depth'"]),
    (["policy.depth=3"], ["policy.depth", "+policy.depth=3"]),
    (["policy=multi_bin", "+policy.dins=3"], ["policy.dins", "MultiBin", "bins"]),
    (["policy=multi_bin", "policy.bins=0"], ["policy", "bins", "0"]),
    (["policy=multi_bin", "predictor=none"], ["policy=multi_bin", "predictor=noisy_oracle"]),
    (["policy._target_=no.where.Policy"], ["policy._target_", "no.where.Policy"]),
    (["policy._target_=policies.fcfs.Policie"], ["policy._target_", "policies.fcfs.Policie"]),
    (["policy._target_=pathlib.Path"], ["policy._target_", "pathlib.Path", "policies.api.Policy"]),
    (["policy._target_=null"], ["policy._target_", "None"]),
    (["predictor._target_=policies.fcfs.FCFS", "predictor=oracle"], ["predictor._target_", "predictors.api.Predictor"]),
    (["predictor=constant", "predictor.tokens=0"], ["predictor", "tokens", "0"]),
    (["prediction.fallback_tokens=0"], ["prediction.fallback_tokens", "0"]),
    (["prediction.latency_s=-1"], ["prediction.latency_s", "-1"]),
    # the command line itself
    (["seed=0,1"], ["seed=0,1", "--multirun"]),
    (["engine=[1"], ["engine=[1"]),
    (["--cfg", "job", "-m"], ["--cfg"]),
]


@pytest.mark.parametrize(("arguments", "named"), REFUSED, ids=lambda value: " ".join(value) if value else None)
def test_bad_input_is_refused_in_one_line_that_names_it(
    arguments: list[str], named: list[str], batchyard: Batchyard
) -> None:
    trace = any(argument.startswith("workload=") for argument in arguments)
    line = batchyard(*arguments, small=not trace).complaint
    assert all(name in line for name in named), line


def test_a_sweep_with_a_value_that_cannot_be_composed_runs_nothing(batchyard: Batchyard, tmp_path: Path) -> None:
    told = batchyard("-m", "seed=0,x", "hydra.sweep.dir=sweep")
    assert told.code == 2
    assert "seed" in told.err
    assert "'x'" in told.err
    assert not list(tmp_path.glob("sweep/*/summary.json"))


def test_bad_input_leaves_an_earlier_result_in_its_folder(batchyard: Batchyard, tmp_path: Path) -> None:
    assert batchyard("hydra.run.dir=mine").code == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "mine").iterdir() if path.is_file()}
    assert "summary.json" in before
    assert batchyard("hydra.run.dir=mine", "backend.gpu=K80").code == 2
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "mine").iterdir() if path.is_file()}
