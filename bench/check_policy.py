"""``batchyard check-policy NAME``: does a policy keep the contract?"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

import hydra
import yaml
from hydra.errors import HydraException
from omegaconf import OmegaConf

import conf
from backend.errors import BadConfig
from bench import config, plugins
from bench.build import build
from bench.complaints import complain
from bench.errors import BadInput
from bench.policy_kit import Finding, check_policy
from policies.api import Policy


def main(arguments: Sequence[str]) -> int:
    """Exit code 0: it keeps the contract, 1: it does not, 2: there is no such policy."""
    parser = argparse.ArgumentParser(
        prog="batchyard check-policy", description="Does a policy keep the contract of policies/api.py?"
    )
    parser.add_argument("name", help="an option of the group policy, as in policy=NAME, or my.module.MyPolicy")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="parameters of the policy")
    given = parser.parse_args(arguments)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # so that my.module is found where the command is started
    try:
        node = _node(given.name, given.settings)
        build(node, "policy", Policy)
        parameters = {name: value for name, value in node.items() if not name.startswith("_")}
        return _report(given.name, check_policy(lambda: build(node, "policy", Policy), parameters))
    except (BadInput, BadConfig, HydraException) as error:
        return complain(error)


def _node(name: str, settings: Sequence[str]) -> dict[str, Any]:
    """What ``policy=NAME policy.KEY=VALUE`` would build."""
    for setting in settings:
        if "=" not in setting:
            raise BadInput(f"{setting!r} is not of the form KEY=VALUE")
    if "." in name:
        return {"_target_": name} | {
            key: yaml.safe_load(value) for key, _, value in (s.partition("=") for s in settings)
        }
    plugins.register()
    config.register()
    with hydra.initialize_config_module(conf.__name__, version_base=None):
        composed = hydra.compose("config", [f"policy={name}", *(f"policy.{setting}" for setting in settings)])
    node = OmegaConf.to_container(composed.policy, resolve=True)
    assert isinstance(node, dict)
    return {str(key): value for key, value in node.items()}


def _report(name: str, findings: Sequence[Finding]) -> int:
    for finding in findings:
        print(f"{'FAILED' if finding.problem else 'ok':<6}  {finding.rule}")
        if finding.problem:
            print(f"        {finding.problem}")
    broken = sum(bool(finding.problem) for finding in findings)
    print(f"{name} " + (f"breaks {broken} of {len(findings)} rules" if broken else "keeps the contract"))
    return 1 if broken else 0
