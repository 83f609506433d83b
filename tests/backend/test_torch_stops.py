"""When a request ends: EOS of any declared id, stop strings, forced lengths; and what draws depend on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from backend.api import Sampling
from backend.torch_device.device import TorchDevice
from torch_models import VOCABULARY, generated, prompts, tiny
from torch_pump import Ask, Pump, once_dispatched

[PROMPT] = prompts(9)
OTHERS = prompts(4, 30, 17, seed=1)


def device_of(**changes: Any) -> TorchDevice:
    return TorchDevice(tiny("llama", **changes), num_blocks=60)


@pytest.fixture(scope="module")
def device() -> Iterator[TorchDevice]:
    made = device_of()
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def free() -> list[int]:
    """What the model says if nothing stops it."""
    return generated(tiny("llama"), PROMPT, 40)


@pytest.mark.parametrize("overlap", [True, False])
def test_each_declared_end_ends(free: list[int], overlap: bool) -> None:
    """Two ids are declared; the one that comes first stops, and its token is the last. One slot more at most."""
    ends = [free[12], free[5]]
    first = min(free.index(end) for end in ends)
    made = device_of(eos_token_id=ends)
    pump = Pump(made, overlap)
    ignored, stopped = pump.run([Ask(PROMPT, 40, Sampling(ignore_eos=True)), Ask(PROMPT, 40)])
    made.shutdown()
    assert stopped.ids == free[: first + 1]
    assert stopped.reason == "stop"
    assert (ignored.ids, ignored.reason) == (free, "length")


def test_an_end_inside_the_prompt_does_not_stop() -> None:
    prompt = [5, 2, 9, 2]
    expected = generated(tiny("llama"), prompt, 5)
    assert 2 not in expected
    made = device_of(eos_token_id=2)
    [answer] = Pump(made).run([Ask(prompt, 5)])
    made.shutdown()
    assert (answer.ids, answer.reason) == (expected, "length")


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("forced", [1, 2, 13, 39])
def test_a_forced_length_is_exact_and_beats_eos(free: list[int], forced: int, overlap: bool) -> None:
    made = device_of(eos_token_id=free[3])
    pump = Pump(made, overlap)
    [answer] = pump.run([Ask(PROMPT, 40, forced=forced)])
    made.shutdown()
    assert (answer.ids, answer.reason) == (free[:forced], "stop")
    assert pump.steps == forced + overlap  # an end that nobody knew of costs one slot under overlap


def test_an_end_by_length_costs_no_step(device: TorchDevice, free: list[int]) -> None:
    pump = Pump(device)
    [answer] = pump.run([Ask(PROMPT, 7, Sampling(ignore_eos=True))])
    assert (answer.ids, answer.reason, pump.steps) == (free[:7], "length", 7)


def test_a_stop_string_across_tokens(free: list[int]) -> None:
    """Token i is the text " <i>"; the stop string spans two of them."""
    model = tiny("llama")
    made = TorchDevice(model, num_blocks=60)
    words = {f"<{i}>": i for i in range(VOCABULARY)}
    inner = Tokenizer(models.WordLevel(words, unk_token="<0>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.decoder = decoders.Sequence([decoders.Replace("<", " "), decoders.Replace(">", ""), decoders.Fuse()])
    made.tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner)
    stop = f"{free[10]} {free[11]}"
    sampling = Sampling(ignore_eos=True, stop=("never", stop))
    [answer] = Pump(made).run([Ask(PROMPT, 40, sampling)])
    made.shutdown()
    assert (answer.ids, answer.reason) == (free[:12], "stop")


def test_seeded_draws_do_not_depend_on_the_batch(device: TorchDevice) -> None:
    """Alone; beside unseeded neighbours, in chunks, overlapped; preempted at token 5: the same ids."""
    warm = Sampling(temperature=0.8, seed=42, ignore_eos=True)
    noise = [Ask(p, 25, Sampling(temperature=1.0, ignore_eos=True)) for p in OTHERS]
    [alone] = Pump(device, overlap=False).run([Ask(PROMPT, 25, warm)])
    beside = Pump(device, max_num_batched_tokens=8).run([*noise, Ask(PROMPT, 25, warm)])[-1]
    pump = Pump(device)
    pump.planning = once_dispatched(5, "0", lambda engine, request: engine.preempt(request))
    interrupted = pump.run([Ask(PROMPT, 25, warm)])[0]
    assert pump.preemptions == 1
    assert alone.ids == beside.ids == interrupted.ids
    assert alone.ids != generated(tiny("llama"), PROMPT, 25)


def test_seed_zero_is_a_seed_and_no_seed_is_none(device: TorchDevice) -> None:
    def run(seed: int | None) -> list[int]:
        return Pump(device).run([Ask(PROMPT, 20, Sampling(temperature=1.0, seed=seed, ignore_eos=True))])[0].ids

    assert run(0) == run(0) != run(1)
    assert run(None) != run(None)


@pytest.mark.parametrize("batch", [1, 3, 4])
def test_bf16_is_repeatable_in_any_batch(batch: int) -> None:
    """The kernels sum each row in one order whatever goes with it: not even a near tie may differ."""
    made = TorchDevice(tiny("llama").bfloat16(), num_blocks=60)
    asks = [Ask(p, 60, Sampling(ignore_eos=True)) for p in (PROMPT, *OTHERS)]
    together = Pump(made, max_num_seqs=batch, max_num_batched_tokens=11).run(asks)
    alone = [Pump(made, overlap=False).run([ask])[0] for ask in asks]
    made.shutdown()
    assert [a.ids for a in together] == [a.ids for a in alone]
