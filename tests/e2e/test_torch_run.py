"""`batchyard run backend=torch` on a tiny model of random weights that lies in a folder, under every policy."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from backend.traffic import NONE
from bench.traffic.save import save_traffic
from tests.bench.conftest import Batchyard, batchyard, summary_of  # noqa: F401
from torch_models import tiny
from traffic_by_hand import end_alike, leaving_early

POLICIES = ["fcfs", "multi_bin", "fair_share", "oracle_length"]
STATES = ("completed", "cancelled", "rejected", "failed", "unfinished")
MS = 10**9


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama with a tokenizer whose tokens are bytes."""
    folder = tmp_path_factory.mktemp("model")
    tiny("llama").save_pretrained(folder)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i + 3 for i, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    return folder


@pytest.fixture
def on_torch(model: Path) -> list[str]:
    return ["backend=torch", f"backend.model={model}", "backend.chat=false", "backend.threads=1", *SIZES]


SIZES = ["backend.num_blocks=60", "backend.block_size=8", "engine.max_num_seqs=6", "engine.max_num_batched_tokens=32"]
INSTRUCTIONS = ["workload=instructions", "workload.requests=14", "workload.rate=40", "workload.max_tokens=8"]


def requests_of(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder / "requests.parquet").set_index("id").sort_index()


def sound(summary: dict[str, Any], submitted: int) -> bool:
    people = [summary, *summary["tenants"].values()]
    assert all(each["submitted"] == sum(each[state] for state in STATES) for each in people)
    return summary["submitted"] == submitted == sum(each["submitted"] for each in people[1:])


def work_file(path: Path) -> None:
    """Lengths forced, cancels by number of tokens."""
    rng, count = np.random.default_rng(11), 24
    arrivals = np.sort(rng.integers(0, 300, count) * MS).tolist()
    save_traffic(leaving_early(rng, count, arrivals), path)


def test_one_file_ends_the_same_on_the_simulated_gpu_and_on_a_model(
    batchyard: Batchyard,  # noqa: F811
    on_torch: list[str],
    tmp_path: Path,
) -> None:
    work_file(tmp_path / "work.csv")
    same = ["-m", f"policy={','.join(POLICIES)}", "workload=trace", "workload.path=work.csv", "engine.audit=true"]
    told = batchyard(*same, *on_torch, "hydra.sweep.dir=real", small=False)
    assert told.code == 0, told.err
    assert [row.split("│")[1].strip() for row in told.out.splitlines() if row.startswith("│")] == POLICIES
    limit = "engine.max_model_len=256"  # the model's own
    assert batchyard(*same, *SIZES, limit, "hydra.sweep.dir=simulated", small=False).code == 0
    for job in map(str, range(len(POLICIES))):
        real, simulated = tmp_path / "real" / job, tmp_path / "simulated" / job
        files = [{path.name for path in folder.iterdir() if path.is_file()} for folder in (real, simulated)]
        assert files[0] == files[1] >= {"summary.json", "config.yaml", "timing.json", "requests.parquet"}
        got, expected = summary_of(real), summary_of(simulated)
        assert sound(got, 24)
        assert got.keys() == expected.keys()
        assert (got["device_kind"], got["slowdown_mean"]) == ("cpu", None)
        assert 0 < got["gpu_busy_fraction"] <= 1
        ends, known = requests_of(real), requests_of(simulated)
        end_alike(ends, known)
        assert (known["state"] == "cancelled").sum() < 20


def test_a_model_decides_how_long_it_answers_to_real_prompts(
    batchyard: Batchyard,  # noqa: F811
    on_torch: list[str],
    tmp_path: Path,
) -> None:
    told = batchyard(*on_torch, *INSTRUCTIONS, "hydra.run.dir=here", small=False)
    assert told.code == 0, told.err
    summary, requests = summary_of(tmp_path / "here"), requests_of(tmp_path / "here")
    assert sound(summary, 14)
    assert (summary["completed"], summary["oracle"], summary["predictor"]) == (14, False, None)
    assert set(summary["tenants"]) == {"chat", "reader", "author"}
    assert (requests["true_output_tokens"] == NONE).all()
    assert requests["output_tokens"].between(1, 8).all()
    assert requests["prompt_tokens"].between(20, 100).all()  # letters: the tokens of this model


def test_the_real_demo_rehearses_once_and_gives_all_policies_the_same_lengths(
    batchyard: Batchyard,  # noqa: F811
    on_torch: list[str],
    tmp_path: Path,
) -> None:
    told = batchyard("-m", "experiment=demo_real", *on_torch, *INSTRUCTIONS[1:], "hydra.sweep.dir=s", small=False)
    assert told.code == 0, told.err
    [rehearsal] = tmp_path.glob("s/rehearsals/*.jsonl")
    lengths = pd.read_json(rehearsal, lines=True)["output_tokens"]
    for job, policy in enumerate(POLICIES):
        summary, requests = summary_of(tmp_path / f"s/{job}"), requests_of(tmp_path / f"s/{job}")
        assert (summary["completed"], summary["oracle"]) == (14, True), policy
        assert requests.sort_values("row")["output_tokens"].tolist() == lengths.tolist()
        assert requests["true_output_tokens"].tolist() == requests["output_tokens"].tolist()
    assert told.out.count("output tok/s") == 1


REFUSED = [
    (["backend.model=./nowhere"], ["backend.model", "no folder", "nowhere"]),
    (["backend.model={empty}"], ["backend.model", "config.json"]),
    (["backend.model={sliding}"], ["backend.model", "sliding window of 16"]),
    (["backend.max_model_len=9999"], ["backend.model", "max_model_len 9999"]),
    (["backend.kv_memory=10", "backend.num_blocks=null"], ["backend.model", "10 bytes"]),
    (["backend.kv_memory=10"], ["backend.kv_memory", "num_blocks"]),
    (["backend.dtype=int4"], ["backend.dtype", "'int4'", "bfloat16"]),
    (["backend.num_blocks=0"], ["backend.num_blocks", "0"]),
    (["backend.sampling.temperature=-1"], ["backend.sampling.temperature", "-1"]),
    (["backend.sampling.top_p=0"], ["backend.sampling.top_p", "0"]),
    (["backend.horizon_s=0", "predictor=none"], ["backend.horizon_s", "0"]),
    (["workload=instructions", "backend.chat=true"], ["backend.model", "chat"]),
    (["workload=instructions", "policy=oracle_length"], ["policy=oracle_length", "backend.rehearsals"]),
    (["workload=instructions", "predictor=noisy_oracle"], ["predictor=noisy_oracle", "backend.rehearsals"]),
]


@pytest.mark.parametrize(("arguments", "named"), REFUSED, ids=lambda value: " ".join(value) if value else None)
def test_what_cannot_run_is_refused_in_one_line_and_leaves_no_thread(
    arguments: list[str],
    named: list[str],
    batchyard: Batchyard,  # noqa: F811
    on_torch: list[str],
    tmp_path: Path,
) -> None:
    (tmp_path / "empty").mkdir()
    if "backend.model={sliding}" in arguments:
        tiny("qwen2", sliding_window=16, use_sliding_window=True, max_window_layers=0).save_pretrained(
            tmp_path / "sliding"
        )
    own = {argument.split("=")[0] for argument in arguments}
    kept = [argument for argument in on_torch if argument.split("=")[0] not in own]
    line = batchyard(*kept, *(argument.format(empty="empty", sliding="sliding") for argument in arguments)).complaint
    assert all(name in line for name in named), line
    gc.collect()  # a device that could not be made takes its worker with it
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("batchyard-torch")]
