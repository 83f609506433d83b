"""What a run was made from, in tags that tell runs apart where their parameters are the same."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from backend.traffic import Traffic
from policies.api import Policy
from predictors.api import Predictor

DIGEST = 16  # hexadecimal digits


def provenance(
    policy: Policy, predictor: Predictor | None, traffic: Traffic, device: str, base: Path
) -> dict[str, str]:
    """Tags of a run: `oracle` is true if the policy or the predictor knows the true lengths."""
    oracle = any("oracle" in plugin.needs for plugin in (policy, predictor) if plugin is not None)
    tags = {
        "oracle": str(oracle).lower(),
        "backend": device,
        "policy_source_hash": source_hash(type(policy)),
        "trace_hash": traffic_digest(traffic),
        "git_commit": git_commit(base),
    }
    return {name: value for name, value in tags.items() if value is not None}


def source_hash(defined: type) -> str | None:
    """Of the file that defines the class; None where there is none (a notebook, `python -c`)."""
    try:
        return hashlib.sha256(Path(inspect.getfile(defined)).read_bytes()).hexdigest()[:DIGEST]
    except (TypeError, OSError):
        return None


def traffic_digest(traffic: Traffic) -> str:
    """Equal for equal requests, tenants and clients, whatever file they came from."""
    digest = hashlib.sha256()
    for field in dataclasses.fields(traffic):
        value = getattr(traffic, field.name)
        if isinstance(value, np.ndarray):
            digest.update(value.tobytes())
        else:
            digest.update(repr(list(value) if isinstance(value, Sequence) else value).encode())
    return digest.hexdigest()[:DIGEST]


def git_commit(folder: Path) -> str | None:
    """The commit that is checked out where the command was started, with `-dirty` behind it if files differ."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
