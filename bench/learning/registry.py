"""MLflow's model registry: a predictor by name, its versions numbered, one of them called champion."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from bench.errors import BadInput, first_line
from bench.tracking.store import missing_file, open_store, store_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

ADDRESS = "models:/"
FORM = re.compile(r"models:/([^/@]+)(?:@([^/@]+)|/(\d+))")


def register(client: MlflowClient, run: str, folder: str, name: str, alias: str | None) -> str:
    """Make the artifacts in `folder` of a run the newest version of the model `name`; its ``models:/NAME/VERSION``."""
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name, description="How long will the answer be? Trained by batchyard train.")
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise BadInput(f"register.name={name}: {first_line(error)}") from error
    source = f"{client.get_run(run).info.artifact_uri}/{folder}"
    version = client.create_model_version(name, source, run).version
    if alias is not None:
        client.set_registered_model_alias(name, alias, str(version))
    return f"{ADDRESS}{name}/{version}"


def fetch(address: str, store: str, base: Path) -> tuple[Path, str]:
    """A local folder with the model at `address`, and its ``models:/NAME/VERSION``.

    `store` as `tracking.uri`. Raises BadInput if the address, the store or the model is none.
    """
    form = FORM.fullmatch(address)
    if form is None:
        raise BadInput(f"predictor.model: {address!r} is neither models:/NAME@ALIAS nor models:/NAME/VERSION")
    uri = store_uri(store, base)
    if file := missing_file(uri):
        raise BadInput(f"predictor.model: {address}: there is no {file}; `batchyard train` makes one")
    client = open_store(uri)
    from mlflow.artifacts import download_artifacts
    from mlflow.exceptions import MlflowException

    try:
        found = _version(client, *form.groups())
        source = client.get_model_version_download_uri(found.name, str(found.version))
        folder = Path(download_artifacts(artifact_uri=source, tracking_uri=uri))
    except (MlflowException, OSError) as error:
        raise BadInput(
            f"predictor.model: {address}: not in {uri} ({first_line(error)}); there are {_known(client)}"
        ) from error
    return folder, f"{ADDRESS}{found.name}/{found.version}"


def _version(client: MlflowClient, name: str, alias: str | None, number: str | None) -> ModelVersion:
    if alias is not None:
        return client.get_model_version_by_alias(name, alias)
    return client.get_model_version(name, str(number))


def _known(client: MlflowClient) -> str:
    """Names with their aliases, or what makes one."""
    models = client.search_registered_models(max_results=20)
    named = [f"{ADDRESS}{model.name}@{alias}" for model in models for alias in model.aliases]
    return ", ".join([*named, *(f"{ADDRESS}{model.name}" for model in models if not model.aliases)]) or (
        "none: `batchyard train` makes one"
    )
