"""What installed packages add to the command line, found by their entry points.

``batchyard.policies`` and ``batchyard.predictors``: a class, reachable as ``policy=NAME`` with its default parameters.
``batchyard.conf``: a package whose folders ``policy/``, ``workload/``, ``experiment/``, … hold YAML of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from importlib.resources.abc import Traversable

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

import conf
from bench.errors import BadInput

CLASS_GROUPS = {"batchyard.policies": "policy", "batchyard.predictors": "predictor"}
CONF_GROUP = "batchyard.conf"


class InstalledConfigs(SearchPathPlugin):
    """Appends each package's folder of YAML behind Batchyard's own, so that nobody's names shadow ours."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for entry in _installed(CONF_GROUP):
            search_path.append(provider=f"batchyard.conf:{entry.name}", path=f"pkg://{entry.value}")


def register() -> None:
    """Make installed packages known to Hydra; to be called before it composes anything.

    Imports their folders of YAML, nobody's policies. Raises BadInput, naming the entry point, if one is not there.
    """
    Plugins.instance().register(InstalledConfigs)
    folders = [files(conf), *_installed_folders()]
    for group, config_group in CLASS_GROUPS.items():
        for entry in _installed(group):
            # beside YAML of the same name it would be that file's schema
            if not any(folder.joinpath(config_group, f"{entry.name}.yaml").is_file() for folder in folders):
                target = {"_target_": f"{entry.module}.{entry.attr}"}
                ConfigStore.instance().store(name=entry.name, group=config_group, node=target, provider=group)


def _installed_folders() -> Iterator[Traversable]:
    for entry in _installed(CONF_GROUP):
        try:
            yield files(entry.value)
        except ModuleNotFoundError as error:
            raise BadInput(f"entry point {entry.name} = {entry.value} in group {CONF_GROUP}: {error}") from error


def _installed(group: str) -> list[EntryPoint]:
    return sorted(entry_points(group=group), key=lambda entry: entry.name)
