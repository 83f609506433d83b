"""``batchyard check-device NAME``: the device contract's tests on any registered device."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

import yaml

from backend.api import Device
from backend.device_kit import check_device
from bench.errors import BadInput

GROUP = "batchyard.devices"


def main(arguments: Sequence[str]) -> int:
    """Exit code 0: it keeps the contract, 1: it does not, 2: there is no such device."""
    parser = argparse.ArgumentParser(prog="batchyard check-device", description=__doc__.split(": ", 1)[1])
    parser.add_argument("name", help=f"an entry point of group {GROUP}, or module:factory")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="what the device is made with")
    given = parser.parse_args(arguments)
    try:
        device = _make(_factory(given.name), given.name, _settings(given.settings))
    except BadInput as error:
        print(f"batchyard check-device: {error}", file=sys.stderr)
        return 2
    return _report(device)


def _report(device: Device) -> int:
    can = device.capabilities
    print(f"{can.name}: {can.kind}, {can.num_blocks} blocks of {can.block_size} tokens, up to {can.max_model_len} each")
    broken = kept = 0
    for finding in check_device(device):
        print(f"  {'FAILED' if finding.problem else 'ok':<6}  {finding.rule}")
        if finding.problem:
            print(f"          {finding.problem}")
            broken += 1
        else:
            kept += 1
    print(f"{kept} rules kept, {broken} broken")
    return 1 if broken else 0


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


def _settings(given: Sequence[str]) -> dict[str, Any]:
    settings = {}
    for setting in given:
        key, equals, value = setting.partition("=")
        if not equals:
            raise BadInput(f"{setting!r} is not of the form KEY=VALUE")
        settings[key] = yaml.safe_load(value)
    return settings


def _make(factory: Callable[..., object], name: str, settings: dict[str, Any]) -> Device:
    try:
        inspect.signature(factory).bind(**settings)
    except TypeError as error:
        raise BadInput(f"device {name}: {error}; give what it is made with as KEY=VALUE") from error
    try:
        device = factory(**settings)
    except (ValueError, OSError) as error:
        raise BadInput(f"device {name}: {error}") from error
    if not isinstance(device, Device):
        raise BadInput(f"device {name}: makes a {type(device).__name__}, which does not derive from backend.api.Device")
    return device
