"""Runs that nobody will end: their process is gone, and they still say RUNNING."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

HOST, PROCESS = "process.host", "process.id"


def process_tags() -> dict[str, str]:
    """Which process works on a run. The start time tells it from a later one with the same number."""
    return {HOST: socket.gethostname(), PROCESS: f"{os.getpid()}@{psutil.Process().create_time():.0f}"}


def close_orphans(client: MlflowClient, experiment: str) -> list[str]:
    """End as KILLED the running runs whose process was on this host and is gone; their ids."""
    here = socket.gethostname()
    running = client.search_runs([experiment], f"attributes.status = 'RUNNING' AND tags.`{HOST}` = '{here}'")
    closed = [run for run in running if not _alive(run)]
    for run in closed:
        client.set_tag(run.info.run_id, "error", "its process ended without a word (kill -9, power, out of memory)")
        client.set_terminated(run.info.run_id, "KILLED")
    return [run.info.run_id for run in closed]


def _alive(run: Run) -> bool:
    number, _, started = run.data.tags[PROCESS].partition("@")
    try:
        process = psutil.Process(int(number))
        return process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - float(started)) < 2
    except psutil.NoSuchProcess:
        return False
