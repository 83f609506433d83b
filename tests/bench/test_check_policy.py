"""`batchyard check-policy`: what ships keeps the contract, and each way to break it is found and named."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import policy_kit as kit
from bench.check_policy import main
from policies.check import NO_CHANGE, SAME_ANSWER

BROKEN = '''
import random
from policies.api import Decision, Policy, PriorityPolicy


class Walks(Policy):
    """The least that a policy is: right, but for what a class below changes."""

    def decide(self, view):
        return Decision(admit=view.waiting)


class Random(Walks):
    """Draws from what it was given, where it may: this one is right."""

    def reset(self, limits, rng):
        self.rng, self.places = rng, {}

    def on_arrival(self, request, view):
        self.places[request.number] = self.rng.random()

    def decide(self, view):
        return Decision(admit=sorted(view.waiting, key=lambda r: self.places[r.number]))


class Dice(Random):
    def on_arrival(self, request, view):
        self.places[request.number] = random.random()


class Dizzy(Random):
    def decide(self, view):
        return Decision(admit=sorted(view.waiting, key=lambda r: self.rng.random()))


class Counts(Walks):
    def __init__(self):
        self.history = []

    def decide(self, view):
        self.history.append(view.now)
        return super().decide(view)


class Reverses(Walks):
    turn = [False]

    def decide(self, view):
        self.turn[0] = not self.turn[0]
        return Decision(admit=list(view.waiting)[:: 1 if self.turn[0] else -1])


class Greedy(Walks):
    def decide(self, view):
        return Decision(admit=[*view.waiting, *view.running])


class Peeks(Walks):
    def decide(self, view):
        return Decision(admit=sorted(view.waiting, key=lambda r: r.true_output_tokens))


class Idle(Walks):
    def decide(self, view):
        return Decision()


class Snob(Walks):
    def decide(self, view):
        return Decision(admit=[r for r in view.waiting if r.tenant != "b"], revisit_at=view.now + 10**12)


class Waits(Walks):
    def decide(self, view):
        return Decision(hold_until=view.now + 10**12)


class Rounds(Walks):
    needs = frozenset({"prediction"})

    def decide(self, view):
        return Decision(admit=sorted(view.waiting, key=lambda r: int(r.prediction.expected) if r.prediction else 0))


class Ties(Walks):
    def decide(self, view):
        return Decision(admit=[r for _, r in sorted((r.arrival + r.preemptions, r) for r in view.waiting)])


class Remembers(Walks):
    def __init__(self):
        self.seen = 0

    def on_finish(self, request, reason, view):
        self.seen += 1

    def decide(self, view):
        return Decision(admit=list(view.waiting)[:: 1 if self.seen < 24 else -1])


class Renames(Walks):
    def __init__(self, alpha=1.0, beta=2.0):
        self.alpha, self.b = alpha, beta


class Adjusts(Walks):
    def __init__(self, alpha=1.0):
        self.alpha = 2 * alpha


class Falls(Walks):
    def on_preempt(self, request, view):
        raise KeyError(request.id)


class Nothing(Walks):
    def decide(self, view):
        return None
'''


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The module `broken_policies` in the folder where the command is started."""
    (tmp_path / "broken_policies.py").write_text(BROKEN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("broken_policies", None)


def verdict(output: str) -> dict[str, str]:
    """Broken rules -> how."""
    lines = output.splitlines()
    return {line[8:]: lines[i + 1].strip() for i, line in enumerate(lines) if line.startswith("FAILED")}


@pytest.mark.parametrize(
    "arguments",
    [
        ["fcfs"],
        ["oracle_length"],
        ["multi_bin"],
        ["multi_bin", "order=bin_by_bin", "edges=[4,12]", "bins=3", "max_wait_s=0.5"],
        ["fair_share"],
        ["fair_share", "use_predictions=true"],
    ],
    ids=" ".join,
)
def test_what_ships_keeps_the_contract(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    output = capsys.readouterr().out
    assert verdict(output) == {}
    assert [line[8:] for line in output.splitlines()[:-1]] == list(kit.RULES)
    assert output.splitlines()[-1] == f"{arguments[0]} keeps the contract"


@pytest.mark.parametrize("name", ["Walks", "Random"])
def test_a_policy_of_ones_own_keeps_it_too(name: str, broken: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"broken_policies.{name}"]) == 0
    assert capsys.readouterr().out.endswith(f"broken_policies.{name} keeps the contract\n")


@pytest.mark.parametrize(
    ("name", "rules", "says"),
    [
        ("Dice", {kit.SAME_RUN, kit.FORGETS}, "overlap=false"),
        ("Dizzy", {SAME_ANSWER, NO_CHANGE}, "it changed rng"),
        ("Counts", {NO_CHANGE}, "step 1: it changed history"),
        ("Reverses", {SAME_ANSWER}, "admit was ['"),
        ("Greedy", {kit.NAMES}, "Greedy wants to admit request"),
        ("Peeks", {kit.ORACLE}, "Peeks read the true length of request 0"),
        ("Idle", {kit.ENDS, kit.EQUAL, kit.ODD}, "Idle admits nobody"),
        ("Snob", {kit.ENDS, kit.ODD}, "have not ended after 300 s"),
        ("Waits", {kit.ENDS, kit.EQUAL, kit.ODD}, "100 of 100 have not ended after 300 s"),
        ("Rounds", {kit.ODD}, "expected=nan, overlap=false: ValueError: cannot convert float NaN"),
        ("Ties", {kit.EQUAL, kit.NO_ERROR}, "'<' not supported between instances"),
        ("Remembers", {kit.FORGETS}, "overlap=false"),
        ("Renames", {kit.CONSTRUCTOR}, "parameter beta was 2.0, attribute beta is nothing"),
        ("Adjusts", {kit.CONSTRUCTOR}, "parameter alpha was 1.0, attribute alpha is 2.0"),
        ("Falls", {kit.NO_ERROR}, "little memory, overlap=false, batching=continuous, admission=optimistic: KeyError"),
        ("Nothing", {kit.NO_ERROR, kit.EQUAL, kit.ODD, kit.ENDS}, "gives a NoneType"),
    ],
)
def test_each_way_to_break_it_is_found(
    name: str, rules: set[str], says: str, broken: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([f"broken_policies.{name}"]) == 1
    output = capsys.readouterr().out
    found = verdict(output)
    assert rules <= found.keys()
    assert found.keys() - rules <= ALSO.get(name, set())
    assert any(says in how for how in found.values()), found
    assert output.endswith(f"broken_policies.{name} breaks {len(found)} of {len(kit.RULES)} rules\n")


ALSO = {
    "Dizzy": {kit.SAME_RUN, kit.FORGETS},
    "Reverses": {kit.SAME_RUN, kit.FORGETS},
}
"""What may break besides, by chance or as a consequence."""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nope"], "'policy/nope'; Available options in 'policy': fair_share; fcfs;"),
        (["no.such.Policy"], "policy._target_: no 'no.such.Policy' to import"),
        (["predictors.constant.Constant"], "which does not derive from policies.api.Policy"),
        (["multi_bin", "bins=0"], "multi_bin.bins: 0 is not >= 1"),
        (["fcfs", "speed=3"], "Key 'speed' is not in struct"),
        (["fcfs", "speed"], "'speed' is not of the form KEY=VALUE"),
    ],
)
def test_what_is_no_policy_is_said_in_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.out == ""
    assert captured.err.count("\n") == 1


def test_little_memory_preempts_and_three_tenants_lose_clients() -> None:
    """Else the family would show nothing."""
    from policies.fcfs import FCFS
    from predictors.constant import Constant

    little = kit._simulated(kit._little_memory(), FCFS(), Constant(5), blocks=12).requests
    assert (little["preemptions"] > 0).sum() >= 5
    three = kit._simulated(kit._three_tenants(), FCFS(), Constant(5)).requests
    assert (three["state"] == "cancelled").sum() >= 10
    assert (three["state"] == "completed").sum() >= 10
