"""The device contract as tests that run on any device; `batchyard check-device NAME` runs them.

Where a device makes token ids they are compared; where it makes none, only when it stops a request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from backend.api import Device, Sampling
from backend.device_rig import Guest, Problem, Rig

KINDS = ("simulated", "cpu", "cuda")
OUTPUT = 6


@dataclass(frozen=True, slots=True)
class Finding:
    rule: str
    problem: str = ""
    """Empty: the rule is kept."""


def check_device(device: Device) -> Iterator[Finding]:
    """Run every test, one after the other, and shut the device down. Its memory and tokens are the kit's meanwhile."""
    rig = Rig(device)
    for rule, test in TESTS.items():
        try:
            test(rig)
            rig.clear()
            yield Finding(rule)
        except Exception as error:
            with suppress(
                Exception
            ):  # what is broken may not be put in order; the other tests may still tell something
                rig.clear()
            yield Finding(rule, str(error) if isinstance(error, Problem) else f"{type(error).__name__}: {error}")


def _prompts(rig: Rig) -> list[int]:
    """Lengths on both sides of a block's end."""
    longest = rig.can.max_model_len - 2 * OUTPUT
    size = rig.can.block_size
    return [max(1, min(length, longest)) for length in (1, size, size + 1, 2 * size + 3)]


def _same(what: str, guest: Guest, expected: Guest) -> None:
    if guest.tokens != expected.tokens:
        raise Problem(f"{what}: token ids {guest.tokens} where alone they are {expected.tokens}")
    if guest.stopped != expected.stopped:
        raise Problem(f"{what}: stopped with token {guest.stopped}, alone with {expected.stopped}; 0: never")


def _alone(rig: Rig, prompt: int, forced: int | None = None, sampling: Sampling | None = None) -> Guest:
    guest = rig.guest(prompt, OUTPUT, forced=forced, sampling=sampling, seed=prompt)
    rig.play([guest])
    return guest


def capabilities(rig: Rig) -> None:
    can = rig.can
    for name in ("block_size", "num_blocks", "max_model_len"):
        if getattr(can, name) < 1:
            raise Problem(f"capabilities.{name} = {getattr(can, name)} is not >= 1")
    if can.kind not in KINDS:
        raise Problem(f"capabilities.kind = {can.kind!r} is none of {', '.join(KINDS)}")


def open_and_close(rig: Rig) -> None:
    guest = rig.guest(3, 2)
    rig.reopen(guest)
    rig.play([guest])


def refusals(rig: Rig) -> None:
    if not rig.can.vocabulary:
        return
    work = rig.stranger()
    try:
        rig.device.open(work)
    except ValueError as error:
        if work.id not in str(error):
            raise Problem(f"the refusal does not name request {work.id}: {error}") from error
    else:
        raise Problem(f"it takes a token id of {rig.can.vocabulary}; its vocabulary ends before")


def forced_lengths(rig: Rig) -> None:
    lengths = (1, 2, 5, OUTPUT)
    guests = [rig.guest(prompt, OUTPUT + 2, forced=n) for prompt, n in zip(_prompts(rig), lengths, strict=True)]
    rig.play(guests)
    for guest in guests:
        if guest.stopped != guest.forced:
            raise Problem(f"forced to stop with token {guest.forced}, it stopped with token {guest.stopped} (0: never)")


def nobody_stops(rig: Rig) -> None:
    guests = [rig.guest(prompt, OUTPUT) for prompt in _prompts(rig)]
    rig.play(guests)
    if stopped := [guest.stopped for guest in guests if guest.stopped]:
        raise Problem(f"stopped with token {stopped[0]}, though EOS is ignored and no length forced")


def only_who_got_a_token(rig: Rig) -> None:
    first, second = rig.guest(4, OUTPUT), rig.guest(9, OUTPUT)
    for _ in range(4):
        output = rig.step([first, second], chunk=4)
        due = {guest.id for guest in (first, second) if guest.anchor}
        if output.token_ids is not None and set(output.token_ids) != due:
            raise Problem(f"batch {output.number} has token ids of {sorted(output.token_ids)}; due are {sorted(due)}")


def chunks(rig: Rig) -> None:
    for prompt in _prompts(rig):
        guest = rig.guest(prompt, OUTPUT, seed=prompt)
        rig.play([guest], chunk=5)
        _same("a prompt in chunks of 5", guest, _alone(rig, prompt))


def neighbours(rig: Rig) -> None:
    expected = [_alone(rig, prompt) for prompt in _prompts(rig)]
    guests = [rig.guest(prompt, OUTPUT, seed=prompt) for prompt in _prompts(rig)]
    rig.play(guests, chunk=7)
    for guest, alone in zip(guests, expected, strict=True):
        _same("beside others", guest, alone)


def overlap(rig: Rig) -> None:
    expected = [_alone(rig, prompt, forced=4) for prompt in _prompts(rig)]
    guests = [rig.guest(prompt, OUTPUT, seed=prompt, forced=4) for prompt in _prompts(rig)]
    rig.play(guests, overlap=True, chunk=7)
    for guest, alone in zip(guests, expected, strict=True):
        _same("with two batches open", guest, alone)


def preemption(rig: Rig) -> None:
    prompt = _prompts(rig)[2]
    guest = rig.guest(prompt, OUTPUT, seed=prompt, forced=5)
    for made in range(1, 4):
        while guest.made(rig.number) < made:
            rig.step([guest])
        rig.preempt(guest)
    rig.play([guest], chunk=6)
    _same("after three preemptions", guest, _alone(rig, prompt, forced=5))


def padding(rig: Rig) -> None:
    prompt = _prompts(rig)[1]
    guest = rig.guest(prompt, OUTPUT, seed=prompt)
    rig.play([guest], padding=3)
    _same("beside 3 padding slots", guest, _alone(rig, prompt))


def live_batch(rig: Rig) -> None:
    """The engine's own objects are in it: they change as soon as a member leaves, grows or is preempted."""
    prompt = _prompts(rig)[1]
    guest = rig.guest(prompt, OUTPUT, seed=prompt)
    while not guest.over(rig.number):
        batch = rig.plan([guest])
        decodes, chunks = dict.fromkeys(batch.decodes), list(batch.chunks)
        batch.decodes, batch.chunks = decodes.keys(), chunks
        rig.submit(batch)
        table, target = list(guest.table), guest.target
        decodes.clear()
        chunks.clear()
        guest.table.clear()
        guest.target += 1000
        rig.wait([guest])
        guest.table.extend(table)
        guest.target = target
    _same("a batch that changes once it is submitted", guest, _alone(rig, prompt))


def wasted_slots(rig: Rig) -> None:
    ended, going = rig.guest(3, OUTPUT, forced=2), rig.guest(5, OUTPUT, seed=5)
    for _ in range(OUTPUT):
        output = rig.step([ended, going])
        wasted = 0 < ended.stopped < ended.made(output.number)
        if wasted and output.token_ids is not None and ended.id in output.token_ids:
            raise Problem("a member that has stopped is given a token of the batch behind")
    _same("beside one that has ended", going, _alone(rig, 5))


def seeds(rig: Rig) -> None:
    for seed in (0, 42):
        drawn = Sampling(temperature=0.8, top_k=50, top_p=0.9, seed=seed, ignore_eos=True)
        guest, noise = rig.guest(7, OUTPUT, seed=7, sampling=drawn), rig.guest(3, OUTPUT)
        rig.play([guest, noise], overlap=True, chunk=3)
        _same(f"drawn with seed {seed} beside another", guest, _alone(rig, 7, sampling=drawn))


def order_and_times(rig: Rig) -> None:
    since = len(rig.outputs)
    rig.play([rig.guest(prompt, OUTPUT) for prompt in _prompts(rig)], overlap=True)
    outputs = rig.outputs[since:]
    first = outputs[0].number
    if [output.number for output in outputs] != list(range(first, first + len(outputs))):
        raise Problem(f"outputs came as {[output.number for output in outputs]}")
    before = 0
    for output in outputs:
        if not before <= output.started <= output.ended:
            raise Problem(
                f"batch {output.number} ran from {output.started} to {output.ended}, the one before to {before}"
            )
        before = output.ended


def real_time(rig: Rig) -> None:
    """Of a device in virtual time nothing is asked here."""
    guests = [rig.guest(prompt, OUTPUT) for prompt in _prompts(rig)]
    behind = 0
    while not all(guest.over(rig.number) for guest in guests):
        began = rig.clock()
        output = rig.step(guests)
        if output.ended > rig.clock():
            if rig.can.kind == "simulated":
                return
            raise Problem(f"batch {output.number} was over before it ended: its times are not the driver's clock's")
        if output.started < began:
            raise Problem(
                f"batch {output.number} began before it was submitted: its times are not the driver's clock's"
            )
        behind += output.ended > rig.submitted
    if not behind:
        raise Problem("every batch was over when `submit` returned: it is to return at once")


def waiting_in_a_thread(rig: Rig) -> None:
    guest = rig.guest(8, OUTPUT, seed=8)
    with ThreadPoolExecutor(1) as waiter:
        rig.submit(rig.plan([guest]))
        first = waiter.submit(rig.wait, [guest])
        rig.leave(rig.guest(5, OUTPUT))
        new = rig.guest(4, OUTPUT)
        rig.submit(rig.plan([guest, new]))
        first.result()
    rig.wait([guest, new])
    rig.leave(new)
    rig.play([guest])
    _same("while another thread waited", guest, _alone(rig, 8))


def horizons(rig: Rig) -> None:
    guests = [rig.guest(4, 12, forced=forced) for forced in (3, 7, 10)]
    while going := [guest for guest in guests if not guest.over(rig.number)]:
        horizon = rig.device.horizon()
        output = rig.step(going)
        started = any(guest.anchor == output.number for guest in going)
        if output.stopped and output.number < horizon and not started:
            raise Problem(f"batch {output.number} stopped {output.stopped[0]}; the horizon was {horizon}")


def shutdown(rig: Rig) -> None:
    rig.device.shutdown()
    rig.device.shutdown()


TESTS: dict[str, Callable[[Rig], None]] = {
    "its capabilities are sound": capabilities,
    "a request may be closed before it ran, and its id used again": open_and_close,
    "a prompt that cannot be run is refused with ValueError by name": refusals,
    "a forced length is an EOS with exactly that token": forced_lengths,
    "nobody stops who ignores EOS": nobody_stops,
    "token ids are of those who got a token, and of nobody else": only_who_got_a_token,
    "a prompt may come in chunks": chunks,
    "neighbours change nothing": neighbours,
    "a batch may be submitted before the one before is back": overlap,
    "a preempted request goes on in other blocks": preemption,
    "padding changes nothing": padding,
    "a batch is read when submit returns": live_batch,
    "a slot wasted on one that has stopped leaves no trace": wasted_slots,
    "a seed draws the same, whoever is beside": seeds,
    "outputs come in order, and their times too": order_and_times,
    "in real time, submit returns at once and times are the driver's": real_time,
    "everything else may be called while a thread waits": waiting_in_a_thread,
    "the horizon is a lower bound": horizons,
    "it may be shut down twice": shutdown,
}
