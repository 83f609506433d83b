"""``batchyard check-device NAME``: the device contract's tests on any registered device."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import yaml

from backend.api import Device
from backend.device_kit import check_device
from bench.devices import GROUP, make
from bench.errors import BadInput


def main(arguments: Sequence[str]) -> int:
    """Exit code 0: it keeps the contract, 1: it does not, 2: there is no such device."""
    parser = argparse.ArgumentParser(prog="batchyard check-device", description=__doc__.split(": ", 1)[1])
    parser.add_argument("name", help=f"an entry point of group {GROUP}, or module:factory")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="what the device is made with")
    given = parser.parse_args(arguments)
    try:
        device = make(given.name, _settings(given.settings))
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


def _settings(given: Sequence[str]) -> dict[str, Any]:
    settings = {}
    for setting in given:
        key, equals, value = setting.partition("=")
        if not equals:
            raise BadInput(f"{setting!r} is not of the form KEY=VALUE")
        settings[key] = yaml.safe_load(value)
    return settings
