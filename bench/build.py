"""Policies and predictors from their `_target_`, whether it lies in Batchyard, in a package or in the user's folder."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any, TypeVar

from bench.errors import BadInput
from bench.hydra_compat import instantiate

T = TypeVar("T")


def build(node: Mapping[str, Any], group: str, contract: type[T]) -> T:
    """The object that the configuration of `group` describes.

    Raises BadInput for a target that cannot be imported or is no `contract`, and for parameters it does not take.
    What the module itself raises when imported is a defect of the module and passes through.
    """
    target = node.get("_target_")
    if not isinstance(target, str):
        raise BadInput(f"{group}._target_: expected a dotted path like my.module.MyClass, got {target!r}")
    _check_parameters(_import(target, group), node, group)
    try:
        built = instantiate(node)
    except BadInput:  # it names its key itself
        raise
    except (TypeError, ValueError, OSError) as error:
        raise BadInput(f"{group} ({target}): {error}") from error
    if not isinstance(built, contract):
        wanted = f"{contract.__module__}.{contract.__name__}"
        raise BadInput(
            f"{group}._target_: {target} gives a {type(built).__name__}, which does not derive from {wanted}"
        )
    return built


def _import(target: str, group: str) -> Any:
    module, _, name = target.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ModuleNotFoundError, AttributeError, ValueError) as error:
        raise BadInput(f"{group}._target_: no {target!r} to import ({error})") from error


def _check_parameters(factory: Any, node: Mapping[str, Any], group: str) -> None:
    accepted = inspect.signature(factory).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values()):
        return
    for name in node:
        if not name.startswith("_") and name not in accepted:
            takes = ", ".join(accepted) or "none"
            raise BadInput(f"{group}.{name}: {factory.__name__} has no parameter {name!r}; it takes {takes}")
