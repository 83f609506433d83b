"""What holds of every device that runs a model: three prompts get the ids of `generate`, whatever happens to one."""

from __future__ import annotations

from backend.api import Device, Sampling
from torch_models import generated, prompts, tiny
from torch_pump import Ask, Pump, once_dispatched

PROMPTS = prompts(1, 7, 33, 16, 50, 3, 90, 12)
THREE = PROMPTS[1:4]
FREE = Sampling(ignore_eos=True)


def alone(family: str, asked: list[list[int]], count: int) -> list[list[int]]:
    """What the model says to each prompt, if nothing stops it."""
    model = tiny(family)
    return [generated(model, prompt, count) for prompt in asked]


def preempted_after(device: Device, solo: list[list[int]], k: int, overlap: bool) -> None:
    """What is recomputed ends with the token that was under way."""
    pump = Pump(device, overlap, max_num_batched_tokens=12, max_num_seqs=3)
    pump.planning = once_dispatched(k, "1", lambda engine, request: engine.preempt(request))
    assert [a.ids for a in pump.run([Ask(p, len(solo[0]), FREE) for p in THREE])] == solo
    assert pump.preemptions == 1


def neighbour_cancelled_after(device: Device, solo: list[list[int]], k: int) -> None:
    pump = Pump(device, max_num_seqs=3)
    pump.planning = once_dispatched(k, "0", lambda engine, request: engine.cancel(request.id, engine.now))
    left, *others = pump.run([Ask(p, len(solo[0]), FREE) for p in THREE])
    assert [a.ids for a in others] == solo[1:]
    assert left.state == "cancelled"
    assert left.ids == solo[0][: len(left.ids)]
    assert len(left.ids) < k


def preempted_for_want_of_blocks(device: Device, count: int) -> None:
    """Four prompts of 50 tokens and `count` outputs each, on too few blocks for all."""
    lengths = prompts(50, 50, 50, 50)
    pump = Pump(device, max_num_batched_tokens=32)
    answers = pump.run([Ask(p, count, FREE) for p in lengths])
    assert pump.preemptions > 0
    assert [a.ids for a in answers] == alone("llama", lengths, count)
