"""The formats by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench.traces import azure, burstgpt, mooncake, plain, servegen, vidur, vtc
from bench.traces.reading import Loaded

FORMATS: dict[str, Callable[[Path, bool, int], Loaded]] = {
    "azure": azure.read,
    "burstgpt": burstgpt.read,
    "mooncake": mooncake.read,
    "vtc": vtc.read,
    "vidur": vidur.read,
    "servegen": servegen.read,
    "plain": plain.read,
}
"""name: read(path, strict, seed)"""
