"""The device contract's own tests, on every way of running a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from backend.api import Sampling
from backend.device_kit import check_device
from backend.torch_device.device import TorchDevice
from torch_models import tiny


@pytest.mark.parametrize(("family", "way"), [("llama", {"block_size": 4}), ("gpt2", {})])
def test_the_contract(family: str, way: dict[str, Any]) -> None:
    device = TorchDevice(tiny(family), num_blocks=64, **way)
    assert [finding for finding in check_device(device) if finding.problem] == []


def test_text_in_and_out(shared: Path) -> None:
    """A model without a tokenizer takes ids only; with one, a text comes back as it went in."""
    device = TorchDevice(tiny("llama"), num_blocks=8)
    with pytest.raises(ValueError, match="torch has no tokenizer"):
        device.encode("hello")
    assert device.decoder(Sampling()) is None
    device.tokenizer = AutoTokenizer.from_pretrained(shared / "data" / "smollm2_tokenizer")
    decoder = device.decoder(Sampling(stop=("END",)))
    assert decoder is not None
    pieces = [decoder.push(i) for i in device.encode("né 日本 END more")]
    assert "".join(pieces) + decoder.flush() == "né 日本 "
    device.shutdown()
