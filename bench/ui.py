"""``batchyard ui``: MLflow's pages on the store, with the columns that matter and the last sweep side by side."""

from __future__ import annotations

import argparse
import json
import os
import sys
import urllib.parse
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.complaints import complain
from bench.errors import BadInput
from bench.tracking.orphans import close_orphans
from bench.tracking.server import serving
from bench.tracking.signals import stoppable
from bench.tracking.store import USUAL, missing_file, open_store, store_uri
from bench.tracking.views import VIEW, last_sweep, save_view

if TYPE_CHECKING:
    from mlflow import MlflowClient


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    try:
        _show(options)
    except BadInput as error:
        return complain(error)
    except KeyboardInterrupt:
        return 0
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="batchyard ui", description="Compare runs in MLflow's web pages.")
    parser.add_argument("--uri", default=USUAL, help="the store (MLFLOW_TRACKING_URI overrides it)")
    parser.add_argument("--experiment", default="batchyard")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5000)
    parser.add_argument("--no-browser", action="store_true", help="only print the addresses")
    return parser


def _show(options: argparse.Namespace) -> None:
    uri = store_uri(options.uri, Path.cwd())
    if file := missing_file(uri):
        raise BadInput(f"no runs yet: there is no {file}; `batchyard run` makes one")
    client = open_store(uri)
    experiment = _experiment(client, options.experiment, uri)
    close_orphans(client, experiment)
    query = f"?viewStateShareKey={VIEW}" if save_view(client, experiment) else ""
    if uri.startswith("http"):
        _announce(client, experiment, uri.rstrip("/"), query, options.no_browser)
        return
    with stoppable(), serving(uri, options.host, options.port) as server:
        _announce(client, experiment, f"http://{options.host}:{options.port}", query, options.no_browser)
        server.wait()


def _experiment(client: MlflowClient, name: str, uri: str) -> str:
    found = client.get_experiment_by_name(name)
    if found is None:
        names = ", ".join(experiment.name for experiment in client.search_experiments())
        raise BadInput(f"--experiment {name}: not in {uri}; there are {names}")
    return str(found.experiment_id)


def _announce(client: MlflowClient, experiment: str, base: str, query: str, no_browser: bool) -> None:
    table = f"{base}/#/experiments/{experiment}/runs{query}"
    charts = f"{table}{'&' if query else '?'}compareRunsMode=CHART"
    print(f"runs     {table}\ncharts   {charts}\nmodels   {base}/#/models")
    compare = None
    if runs := last_sweep(client, experiment):
        query = urllib.parse.urlencode({"runs": json.dumps(runs), "experiments": json.dumps([experiment])})
        compare = f"{base}/#/compare-runs?{query}"
        print(f"compare  {compare}\n         (parallel coordinates, scatter and box plots of the last sweep)")
    print("Ctrl-C ends.", flush=True)
    if not no_browser and sys.stdout.isatty() and _has_screen():
        webbrowser.open(compare or table)


def _has_screen() -> bool:
    """Elsewhere a text browser would take the terminal."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
