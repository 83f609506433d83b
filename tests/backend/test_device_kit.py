"""The kit passes what keeps the device contract, and names the rule that is broken."""

from __future__ import annotations

import pytest

from backend.api import Output
from backend.costs import ConstantCost
from backend.device_kit import TESTS, check_device
from backend.devices import realtime, simulated
from backend.realtime import RealTimeDevice, made_up_token
from backend.simulated import SimulatedDevice
from backend.torch_device.device import TorchDevice
from torch_models import tiny


def broken(device):
    """Rules that the kit finds broken."""
    return {finding.rule: finding.problem for finding in check_device(device) if finding.problem}


def test_the_simulated_devices_keep_the_contract():
    assert broken(simulated()) == {}
    assert broken(realtime()) == {}


@pytest.mark.parametrize("ways", [{}, {"fused": False}, {"compiled": False}], ids=str)
def test_the_torch_device_keeps_the_contract(ways):
    assert broken(TorchDevice(tiny("llama"), num_blocks=60, block_size=8, threads=1, **ways)) == {}


def test_every_rule_is_told_once():
    assert [finding.rule for finding in check_device(simulated())] == list(TESTS)


class Faulty(RealTimeDevice):
    def __init__(self):
        super().__init__(ConstantCost(1), num_blocks=100, max_model_len=512)


class ReadsLate(Faulty):
    """Looks into the live batch when it is waited for."""

    def submit(self, batch, now):
        self.batches = {**getattr(self, "batches", {}), batch.number: batch}
        return super().submit(batch, now)

    def wait(self, ticket):
        output = super().wait(ticket)
        output.token_ids = self._tokens(self.batches[ticket])
        return output


class LooksAtTheTable(Faulty):
    """What it says depends on where the KV lies."""

    def _tokens(self, batch):
        tables = {member.id: member.table[0] for member in [*batch.decodes, *(c.member for c in batch.chunks)]}
        return {name: token + tables[name] for name, token in super()._tokens(batch).items()}


class KnowsTheName(Faulty):
    """Two requests with the same prompt get different answers."""

    def _tokens(self, batch):
        return {name: made_up_token([hash(name) % 1000], 0) for name in super()._tokens(batch)}


class StopsLate(Faulty):
    def open(self, work):
        if work.forced_output_tokens is not None:
            object.__setattr__(work, "forced_output_tokens", work.forced_output_tokens + 1)
        super().open(work)


class FeedsTheDead(Faulty):
    """Goes on handing out tokens of one that has stopped."""

    def _tokens(self, batch):
        for known in self._known.values():
            known.over = False
        return super()._tokens(batch)


class AnswersChunks(Faulty):
    def _tokens(self, batch):
        return {**{chunk.member.id: 0 for chunk in batch.chunks}, **super()._tokens(batch)}


class CountsPadding(Faulty):
    def _tokens(self, batch):
        return {name: token + batch.padding for name, token in super()._tokens(batch).items()}


class Blocks(Faulty):
    """Does the work in `submit`."""

    def submit(self, batch, now):
        ticket = super().submit(batch, now)
        self._outputs[ticket].result()
        return ticket


class OwnClock(Faulty):
    def set_clock(self, clock):
        super().set_clock(lambda: clock() - 10**15)


class TakesAnything(Faulty):
    def open(self, work):
        super().open(work if max(work.prompt_ids) < 65536 else type(work)(work.id, 1, [0]))


class DiesInTheMiddle(Faulty):
    def _run(self, output: Output) -> Output:
        if output.number > 20:
            raise RuntimeError("no more")
        return super()._run(output)


class ShutsDownOnce(Faulty):
    def shutdown(self):
        super().shutdown()
        del self._worker


class TooFar(SimulatedDevice):
    def horizon(self):
        return super().horizon() + 1


@pytest.mark.parametrize(
    ("device", "rule", "says"),
    [
        (ReadsLate, "a batch is read when submit returns", "token ids"),
        (LooksAtTheTable, "a preempted request goes on in other blocks", "after three preemptions: token ids"),
        (KnowsTheName, "neighbours change nothing", "beside others: token ids"),
        (StopsLate, "a forced length is an EOS with exactly that token", "with token 1, it stopped with token 2"),
        (FeedsTheDead, "a slot wasted on one that has stopped leaves no trace", "is given a token"),
        (AnswersChunks, "token ids are of those who got a token, and of nobody else", "due are"),
        (CountsPadding, "padding changes nothing", "beside 3 padding slots"),
        (Blocks, "in real time, submit returns at once and times are the driver's", "every batch was over"),
        (OwnClock, "in real time, submit returns at once and times are the driver's", "began before it was submitted"),
        (TakesAnything, "a prompt that cannot be run is refused with ValueError by name", "takes a token id of 65536"),
        (DiesInTheMiddle, "neighbours change nothing", "RuntimeError: no more"),
        (ShutsDownOnce, "it may be shut down twice", "AttributeError"),
    ],
)
def test_the_rule_that_a_device_breaks_is_named(device, rule, says):
    assert says in broken(device())[rule]


def test_a_horizon_that_is_too_far_is_found():
    found = broken(TooFar(ConstantCost(1), num_blocks=100, max_model_len=512))
    assert list(found) == ["the horizon is a lower bound"]


def test_capabilities_that_make_no_sense_are_found():
    device = Faulty()
    object.__setattr__(device.capabilities, "kind", "abacus")
    assert "'abacus' is none of simulated, cpu, cuda" in broken(device)["its capabilities are sound"]
