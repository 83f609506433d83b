"""From a name to a model: what leads nowhere says so at once, and nothing is left behind."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest
from huggingface_hub import HfApi
from huggingface_hub.errors import RepositoryNotFoundError

from backend.errors import BadConfig
from backend.torch_device.cuda_device import CudaDevice
from backend.torch_device.device import TorchDevice
from backend.torch_device.loading import load
from tests.conftest import ROOT
from torch_models import tiny


def test_no_hub_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whatever kind the silence is; transformers would try again for half a minute."""

    def silent(*_: object, **__: object) -> None:
        raise TimeoutError("timed out\nand more of it")

    monkeypatch.setattr(HfApi, "model_info", silent)
    began = time.monotonic()
    with pytest.raises(BadConfig) as told:
        load("nobody/none")
    assert str(told.value) == "model nobody/none: no folder here, not downloaded before, and no hub answers: timed out"
    assert time.monotonic() - began < 2


def test_an_address_where_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.hf_api.ENDPOINT", "http://127.0.0.1:9", raising=False)
    began = time.monotonic()
    with pytest.raises(BadConfig, match="model nobody/none: no folder here, not downloaded before, and no hub answers"):
        load("nobody/none")
    assert time.monotonic() - began < 5


def test_the_hub_knows_no_such_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise RepositoryNotFoundError.__new__(RepositoryNotFoundError)

    monkeypatch.setattr(HfApi, "model_info", unknown)
    with pytest.raises(BadConfig, match="model nobody/none: no folder here, and the hub knows no such model"):
        load("nobody/none")


def test_what_is_no_name_of_a_model() -> None:
    with pytest.raises(ValueError, match="no body"):
        load("no body//none")


@pytest.mark.parametrize("make", [TorchDevice, partial(CudaDevice, on="cpu")], ids=["cpu", "cuda"])
def test_no_worker_outlives_a_device_that_could_not_be_made(make: Callable[..., object]) -> None:
    before = threading.active_count()
    with pytest.raises(ValueError, match="10 bytes hold no block"):
        make(tiny("llama"), kv_memory=10)
    assert threading.active_count() == before


def test_a_model_that_is_there_is_found_without_torch() -> None:
    """`batchyard fetch-model` answers in a moment: torch and transformers take seconds to import."""
    code = (
        "import sys; import bench.fetch_model, backend.torch_device.fetch;"
        "print({'torch', 'transformers'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"
