"""What MLflow's experiment page shows first: a view saved in the experiment, as its own "share" button would.

Its format is MLflow's own and not published: what it does not know it ignores, and tests/e2e look at the pages.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from bench.tracking.metrics_map import WORST_TENANT
from bench.tracking.mlflow_tracker import PARENT_TAG

if TYPE_CHECKING:
    from mlflow import MlflowClient

VIEW = "batchyard"
"""Its name, for ``?viewStateShareKey=``."""

NAME = "attributes.`Run Name`"
COLUMNS = {
    "params.`policy`": 130,
    "params.`predictor`": 120,
    "params.`workload`": 120,
    "params.`seed`": 60,
    "metrics.`throughput/output_throughput`": 210,
    "metrics.`latency/p99_ttft_ms`": 150,
    f"metrics.`{WORST_TENANT}`": 240,
    "metrics.`fairness/max_service_difference`": 250,
    "metrics.`device/gpu_idle_fraction`": 190,
    "metrics.`slo/request_goodput`": 180,
    "tags.`oracle`": 80,
    "tags.`undefined`": 200,
}
"""With their widths. What was run, then the figures of the table at the end of a sweep."""

SECTION = "comparison"
FIGURES = ("throughput/output_throughput", "latency/p99_ttft_ms", "fairness/max_service_difference")

JOBS = "params.policy != ''"
"""Without the parents of sweeps, which have no figures."""


def save_view(client: MlflowClient, experiment: str) -> bool:
    """The latest first, flat: MLflow hides the jobs of a sweep below its parent where the sort key is its own
    ``attributes.start_time``, without the quotes. False, and none saved, where the only runs are trainings."""
    if not client.search_runs([experiment], JOBS, max_results=1) and client.search_runs([experiment], max_results=1):
        return False
    widths = {NAME: 220, "runDateAndNestInfo": 150, "duration": 80, **COLUMNS}
    view = {
        "searchFilter": JOBS,
        "orderByKey": "attributes.`start_time`",
        "orderByAsc": False,
        "selectedColumns": list(COLUMNS),
        "columnOrder": list(widths),
        "columnWidths": widths,
        "runsHiddenMode": "FIRST_20_RUNS",
        "compareRunSections": [
            {"uuid": SECTION, "name": SECTION, "display": True, "isReordered": False, "columns": 2, "cardHeight": 460}
        ],
        "compareRunCharts": [_parallel(), _scatter("throughput/output_throughput", "fairness/max_service_difference")],
    }
    client.set_experiment_tag(experiment, f"mlflow.sharedViewState.{VIEW}", json.dumps(view))
    return True


def _parallel() -> dict[str, object]:
    return _chart("PARALLEL", selectedParams=["policy", "seed"], selectedMetrics=list(FIGURES), showAllRuns=True)


def _scatter(x: str, y: str) -> dict[str, object]:
    return _chart("SCATTER", xaxis={"key": x, "type": "METRIC"}, yaxis={"key": y, "type": "METRIC"})


def _chart(kind: str, **settings: object) -> dict[str, object]:
    common = {"uuid": f"{SECTION}-{kind}", "type": kind, "metricSectionId": SECTION, "runsCountToCompare": 20}
    return {**common, "deleted": False, "isGenerated": False, **settings}


def last_sweep(client: MlflowClient, experiment: str, at_most: int = 100) -> list[str]:
    """Run ids of the latest sweep that has at least two finished jobs; MLflow's compare page bears about a hundred."""
    finished = client.search_runs([experiment], "attributes.status = 'FINISHED'", max_results=1000)
    children: dict[str, list[str]] = {}
    for run in finished:  # the latest first
        if parent := run.data.tags.get(PARENT_TAG):
            children.setdefault(parent, []).append(run.info.run_id)
    return next((runs[:at_most] for runs in children.values() if len(runs) > 1), [])
