"""The command line: one table of subcommands, each imported only when it is called."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import NamedTuple


class Command(NamedTuple):
    target: str
    """``module:function``; called with the arguments after the subcommand, it gives the exit code."""
    summary: str


COMMANDS = {
    "run": Command("bench.hydra_app:main", "run one experiment, or with -m a sweep of them"),
    "collect": Command("bench.learning.collect:main", "turn finished runs into rows to train a length predictor on"),
    "train": Command("bench.learning.train:main", "fit a length predictor, score it and put it into MLflow's registry"),
    "check-policy": Command("bench.check_policy:main", "run the conformance kit on a policy"),
    "check-device": Command("bench.check_device:main", "run the device contract's tests on a device"),
    "fetch-model": Command("bench.fetch_model:main", "make the default model ready: smollm2"),
    "ui": Command("bench.ui:main", "compare runs in MLflow's web pages"),
}

HELP = """\
usage: batchyard COMMAND [ARGUMENTS]

A playground for LLM-serving scheduling policies.

commands:
{commands}

  batchyard run                                        the defaults: three tenants, first come first served
  batchyard run policy=multi_bin engine.overlap=false  other policy, other loop
  batchyard run -m policy=fcfs,fair_share seed=0,1,2   a sweep
  batchyard COMMAND --help                             what a command takes
  eval "$(batchyard -sc install=bash)"                 tab completion (bash, fish, zsh by way of bash)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: done, 1: a run failed, 2: bad input."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    name, rest = (arguments[0], arguments[1:]) if arguments else ("--help", [])
    if name in ("-h", "--help"):
        width = max(map(len, COMMANDS))
        print(HELP.format(commands="\n".join(f"  {n:<{width}}  {c.summary}" for n, c in COMMANDS.items())), end="")
        return 0
    if name == "--version":
        print(f"batchyard {version('batchyard')}")
        return 0
    if name in ("-sc", "--shell-completion"):
        return _complete(arguments)
    if name not in COMMANDS:
        print(f"batchyard: no command {name!r}; there are: {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    return load(COMMANDS[name])(rest)


def load(command: Command) -> Callable[[Sequence[str]], int]:
    module, _, function = command.target.partition(":")
    loaded: Callable[[Sequence[str]], int] = getattr(import_module(module), function)
    return loaded


def _complete(arguments: Sequence[str]) -> int:
    """Hydra completes what follows ``run``; the shells call back with the bare name of the program."""
    line = os.environ.get("COMP_LINE")
    if line is not None:
        program, _, typed = line.lstrip().partition(" ")
        command, space, overrides = typed.lstrip().partition(" ")
        if not space:
            print(" ".join(name for name in COMMANDS if name.startswith(command)))
            return 0
        if command != "run":
            return 0
        os.environ["COMP_LINE"] = f"{program} {overrides}"
    return load(COMMANDS["run"])(arguments)


if __name__ == "__main__":
    sys.exit(main())
