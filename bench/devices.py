"""Devices of whatever package is installed, by their names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from backend.api import Device
from bench.errors import BadInput

GROUP = "batchyard.devices"


def make(name: str, settings: Mapping[str, Any]) -> Device:
    """`name`: an entry point, or ``module:factory``. Raises BadInput, naming the device, for whatever goes wrong."""
    factory = _factory(name)
    try:
        inspect.signature(factory).bind(**settings)
    except TypeError as error:
        raise BadInput(f"device {name}: {error}") from error
    try:
        device = factory(**settings)
    except (ValueError, OSError) as error:
        raise BadInput(f"device {name}: {error}") from error
    if not isinstance(device, Device):
        raise BadInput(f"device {name}: makes a {type(device).__name__}, which does not derive from backend.api.Device")
    return device


def _factory(name: str) -> Callable[..., object]:
    known = {entry.name: entry for entry in entry_points(group=GROUP)}
    module, colon, attribute = name.partition(":")
    factory: Callable[..., object]
    try:
        if name in known:
            factory = known[name].load()
        elif colon:
            factory = getattr(import_module(module), attribute)
        else:
            names = ", ".join(sorted(known)) or "none"
            raise BadInput(f"no device {name!r}; there are: {names}; or give module:factory")
    except (ImportError, AttributeError) as error:
        raise BadInput(f"device {name}: {error}") from error
    return factory
