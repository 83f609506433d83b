"""One way to call Hydra 1.3 and 1.4.

1.3 wants a `version_base`. 1.4 wants to know which targets a configuration may call: any, since who types the command
chooses what it imports, as with ``python -c``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import hydra
import hydra.utils
from hydra.errors import InstantiationException

TaskFunction = Callable[[Any], Any]


def hydra_main(task: TaskFunction, config_path: str, config_name: str) -> Callable[[], None]:
    """`task` as a program that reads its overrides from `sys.argv`."""
    if _knows_whitelist():
        options = {"execution_whitelist": vars(hydra.utils)["UNSAFE_DISABLE_EXECUTION_CHECKS"]}
    else:
        options = {"version_base": None}
    program: Callable[[], None] = hydra.main(config_path=config_path, config_name=config_name, **options)(task)
    return program


def instantiate(node: Mapping[str, Any]) -> Any:
    """Call the node's `_target_`, and those inside it, with plain Python values; raises what the target raises."""
    options: dict[str, Any] = {"_convert_": "all"}
    if _knows_whitelist():
        options["_execution_whitelist_"] = vars(hydra.utils)["UNSAFE_DISABLE_EXECUTION_CHECKS"]
    try:
        return hydra.utils.instantiate(dict(node), **options)
    except InstantiationException as error:
        raise error.__cause__ or error from None


def ends_failed_sweeps() -> bool:
    """Whether the callbacks hear of the end of a sweep in which a job failed: in 1.3 they do not."""
    return _knows_whitelist()


def _knows_whitelist() -> bool:
    return "execution_whitelist" in inspect.signature(hydra.main).parameters
