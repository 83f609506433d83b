"""How an error is told on the command line, and with which exit code."""

from __future__ import annotations

import sys
import traceback

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from backend.errors import BadConfig
from bench.errors import BadInput
from policies.api import PolicyError

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130

NOISE = (
    "full_key:",
    "reference_type=",
    "object_type=",
    "provider=",
    "See https://",
    "Config search path:",
    "Search path:",
)
"""Lines of Hydra's and OmegaConf's messages that help only those who work on Hydra."""
HINT = "To append to your config use"


def complain(error: BaseException) -> int:
    """Say what went wrong, in one line if that says all, and give the exit code."""
    if _expected(error):
        print(f"batchyard: {one_line(error)}", file=sys.stderr)
    else:
        traceback.print_exception(error)
    return BAD_INPUT if _bad_input(error) else FAILED


def one_line(error: BaseException) -> str:
    if not _expected(error):
        return f"{type(error).__name__}: {error}"
    hints: list[str] = []
    if isinstance(error, HydraException) and isinstance(error.__cause__, OmegaConfBaseException):
        hints = [line for line in _lines(error) if line.startswith(HINT)]
        error = error.__cause__
    text = "; ".join(_lines(error)).replace(":; ", ": ")
    key = getattr(error, "full_key", None) or getattr(error, "override", None)
    return "; ".join([f"{key}: {text}" if key and key not in text else text, *hints])


def _lines(error: BaseException) -> list[str]:
    lines = [line.strip() for line in str(error).splitlines()]
    return [line for line in lines if line and not line.startswith(NOISE)]


def _bad_input(error: BaseException) -> bool:
    return isinstance(error, BadInput | BadConfig | HydraException | OmegaConfBaseException)


def _expected(error: BaseException) -> bool:
    """The user or the policy's author can put it right; anything else is a defect and wants a traceback."""
    return _bad_input(error) or isinstance(error, PolicyError)
