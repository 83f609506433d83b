"""`backend.device`: a GPU where there is one, unless told otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.torch_device import where
from backend.torch_device.where import cuda_missing
from bench.backends.config import TorchConfig
from bench.backends.real import RealModel
from tests.bench.conftest import Batchyard
from torch_models import tiny


@pytest.mark.parametrize(
    ("argument", "named"),
    [
        ("backend.device=gpu", ["backend.device", "'gpu'", "auto, cpu, cuda"]),
        ("backend.graph_seqs=-1", ["backend.graph_seqs", "-1"]),
    ],
)
def test_what_is_no_choice(argument: str, named: list[str], batchyard: Batchyard) -> None:
    line = batchyard("backend=torch", argument).complaint
    assert all(name in line for name in named), line


def test_cuda_where_there_is_none(batchyard: Batchyard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(where, "cuda_missing", lambda: "torch 9.9 finds no CUDA device")
    line = batchyard("backend=torch", "backend.device=cuda").complaint
    assert line == (
        "batchyard: backend.device: no cuda here: torch 9.9 finds no CUDA device; choose backend.device=cpu"
    )


@pytest.mark.parametrize(
    ("device", "kind"),
    [
        ("cpu", "cpu"),
        pytest.param("auto", "cpu", marks=pytest.mark.skipif(not cuda_missing(), reason="there is a GPU")),
        pytest.param("auto", "cuda", marks=pytest.mark.skipif(bool(cuda_missing()), reason=cuda_missing())),
    ],
)
def test_the_device_that_is_chosen(device: str, kind: str, tmp_path: Path) -> None:
    tiny("llama").save_pretrained(tmp_path / "model")
    config = TorchConfig(model="model", device=device, num_blocks=8, threads=1, chat=False)
    made = RealModel(config, tmp_path)
    assert made.device.capabilities.kind == kind
    made.device.shutdown()
