"""What the device refuses, by name, and what it holds and lets go."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from transformers import BloomConfig, BloomForCausalLM, MistralConfig, MistralForCausalLM, T5Config
from transformers import T5ForConditionalGeneration as T5

from backend.api import DeviceFailed, Sampling, Work
from backend.torch_device.device import TorchDevice
from backend.torch_device.kv_cache import CacheShape
from backend.torch_device.modules import UnsupportedModel
from torch_models import VOCABULARY, prompts, tiny
from torch_pump import Ask, Pump

SMALL = {"num_hidden_layers": 2, "hidden_size": 32, "vocab_size": 99}


def windowed(window: int | None) -> Any:
    config = MistralConfig(**SMALL, num_attention_heads=4, num_key_value_heads=2, sliding_window=window)
    return MistralForCausalLM(config)


def test_a_sliding_window_is_refused_until_it_cannot_slide() -> None:
    with pytest.raises(UnsupportedModel, match=r"MistralForCausalLM: a sliding window of 64 .*max_model_len=64"):
        TorchDevice(windowed(64), num_blocks=4)
    for model, length in ((windowed(64), 64), (windowed(None), None)):
        TorchDevice(model, num_blocks=4, max_model_len=length).shutdown()


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: T5(T5Config(d_model=16, d_kv=8, num_layers=1, num_heads=2, vocab_size=99)), "encoder-decoder"),
        (lambda: BloomForCausalLM(BloomConfig(hidden_size=32, n_layer=1, n_head=2, vocab_size=99)), "attention"),
        (lambda: tiny("llama", rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}), "dynamic"),
        (lambda: tiny("llama", max_position_embeddings=64), "max_model_len 128 is more than the 64"),
    ],
)
def test_a_model_that_would_run_wrongly_is_refused_by_name(model: Any, reason: str) -> None:
    made = model()
    with pytest.raises(UnsupportedModel, match=f"{type(made).__name__}.*{reason}"):
        TorchDevice(made, num_blocks=4, max_model_len=128)


def test_a_model_whose_fused_numbers_differ_runs_through_its_modules() -> None:
    """The layer computes something else than its family: the check at loading sees it."""
    model = tiny("llama")
    model.model.layers[1].mlp.act_fn = torch.nn.ReLU()
    made = TorchDevice(model, num_blocks=40)
    made.shutdown()
    assert made.description.startswith("the model's own modules")


@pytest.mark.parametrize(
    ("ids", "count", "message"),
    [
        (None, 3, "needs prompt_ids"),
        ([], 0, "needs prompt_ids"),
        ([1, 2], 3, "2 prompt_ids and prompt_tokens=3"),
        ([1, VOCABULARY], 2, f"outside 0..{VOCABULARY - 1}"),
        ([-1], 1, "outside"),
        ([1] * 256, 256, "leave no room in 256"),
    ],
)
def test_bad_prompts(ids: list[int] | None, count: int, message: str) -> None:
    made = TorchDevice(tiny("llama"), num_blocks=4)
    with pytest.raises(ValueError, match=f"request r7: .*{message}"):
        made.open(Work("r7", count, ids))
    made.shutdown()


@pytest.mark.parametrize("bad", [{"temperature": -1.0}, {"temperature": float("nan")}, {"top_p": 0.0}, {"top_k": -1}])
def test_bad_sampling(bad: dict[str, Any]) -> None:
    made = TorchDevice(tiny("llama"), num_blocks=4)
    with pytest.raises(ValueError, match="request r7"):
        made.open(Work("r7", 1, [1], sampling=Sampling(**bad)))
    made.shutdown()


def test_stop_strings_without_a_tokenizer() -> None:
    made = TorchDevice(tiny("llama"), num_blocks=4)
    with pytest.raises(ValueError, match="request r7: stop strings need a tokenizer"):
        made.open(Work("r7", 1, [1], sampling=Sampling(stop=("x",))))
    made.shutdown()


def test_bytes_of_the_cache() -> None:
    """8 heads, 2 KV heads of 24, 2 layers, fp32: 768 bytes a token, 12,288 a block of 16; so many fit."""
    shape = CacheShape(layers=2, kv_heads=2, head_dim=24, dtype=torch.float32)
    assert (shape.token_bytes, shape.token_bytes * 16) == (768, 12288)
    assert shape.blocks_in(12288 * 5 + 12287, 16) == 5
    model = tiny("llama", num_hidden_layers=2, hidden_size=128, head_dim=24)
    made = TorchDevice(model, kv_memory=12288 * 5 + 12287)
    made.shutdown()
    assert made.capabilities.num_blocks == 5
    with pytest.raises(ValueError, match="12287 bytes hold no block of 16"):
        TorchDevice(tiny("llama", num_hidden_layers=2, hidden_size=128, head_dim=24), kv_memory=12287)


def test_a_failing_batch_fails_its_ticket_with_the_cause() -> None:
    made = TorchDevice(tiny("llama"), num_blocks=10)
    made._runner = None  # type: ignore[assignment]
    with pytest.raises(DeviceFailed, match=r"torch: batch 1 failed: .*NoneType"):
        Pump(made).run([Ask([5], 3)])
    made.shutdown()


def test_nothing_is_left_over() -> None:
    """Requests are forgotten when they are closed, and the worker ends with the device."""
    before = threading.active_count()
    made = TorchDevice(tiny("llama"), num_blocks=30)
    assert threading.active_count() == before + 1
    Pump(made).run([Ask(p, 5) for p in prompts(*range(1, 60))])
    assert not made._requests
    assert not made._open
    made.shutdown()
    made.shutdown()
    assert threading.active_count() == before


@pytest.mark.parametrize("stop", ["END", (5,)])
def test_a_stop_that_is_no_tuple_of_strings_is_refused(stop: Any) -> None:
    with pytest.raises(ValueError, match=r"sampling\.stop"):
        Sampling(stop=stop)


def test_a_model_that_a_device_runs_cannot_be_called_beside_it() -> None:
    """The kernel knows the rows of its last step only, and would write past them."""
    model = tiny("gpt2")
    device = TorchDevice(model, num_blocks=8, threads=1)
    with pytest.raises(ValueError, match="cannot be called beside it"):
        model.generate(torch.tensor([[1, 2, 3, 4, 5, 6, 7]]), max_new_tokens=2)
    device.shutdown()
