"""Which figures of a summary become metrics, and in which section of MLflow's chart page each stands."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

SECTIONS: dict[str, tuple[str, ...]] = {
    "latency": (
        "mean_ttft_ms",
        "median_ttft_ms",
        "p99_ttft_ms",
        "mean_tpot_ms",
        "p99_tpot_ms",
        "p99_itl_ms",
        "mean_e2el_ms",
        "p99_e2el_ms",
        "mean_queue_wait_ms",
        "p99_queue_wait_ms",
        "cancellation_lag_p99_ms",
        "slowdown_mean",
    ),
    "throughput": ("output_throughput", "request_throughput", "completed", "duration"),
    "fairness": ("max_service_difference", "accumulated_difference", "service_difference_window_mean", "jain"),
    "host": ("host_time_s", "exposed_host_time_s"),
    "device": ("gpu_busy_fraction", "gpu_idle_fraction", "gpu_empty_fraction"),
    "kv": ("kv_fragmentation_mean", "kv_usage_mean", "preemptions"),
    "slo": ("request_goodput",),
}
"""At most 30 with the one below: MLflow's parallel coordinates freeze with very many."""

WORST_TENANT = "fairness/worst_tenant_p99_ttft_ms"


def metrics_of(summary: Mapping[str, Any]) -> tuple[dict[str, float], list[str]]:
    """The metrics of a summary, and the names of those that are undefined: MLflow knows no null."""
    figures = {f"{section}/{key}": summary.get(key) for section, keys in SECTIONS.items() for key in keys}
    tails = [tenant.get("p99_ttft_ms") for tenant in summary.get("tenants", {}).values()]
    figures[WORST_TENANT] = max((tail for tail in tails if tail is not None), default=None)
    defined = {name: float(value) for name, value in figures.items() if value is not None and math.isfinite(value)}
    return defined, [name for name in figures if name not in defined]
