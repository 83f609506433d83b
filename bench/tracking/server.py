"""MLflow's web server on a store, started lean and ended whole."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bench.errors import BadInput
from bench.tracking.store import QUIET

LEAN = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_ENABLE_AI_GATEWAY": "false", "PYTHONWARNINGS": "ignore"}
"""2 processes and 0.5 GB instead of 15 and 2.9 GB."""
PATIENCE_S = 60.0  # until it answers; 5 are usual


@contextmanager
def serving(uri: str, host: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """The server while the block runs, in a session of its own: a Ctrl-C reaches us, and we end all its processes.

    Raises BadInput if the port is taken or the server does not come up.
    """
    _check_free(host, port)
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri, "--workers", "1"]
    command += ["--uvicorn-opts", "--log-level warning", "--host", host, "--port", str(port)]
    server = subprocess.Popen(command, env={**QUIET, **LEAN, **os.environ}, start_new_session=True)
    try:
        _wait(server, f"http://{host}:{port}/health")
        yield server
    finally:
        _end(server)


def _end(server: subprocess.Popen[bytes]) -> None:
    """A browser that holds its connection open must not hold us."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(server.pid, number)
        with suppress(subprocess.TimeoutExpired):
            server.wait(5)
            return


def _check_free(host: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise BadInput(
                f"{host}:{port} cannot be listened on ({error.strerror}); choose another with --port"
            ) from error


def _wait(server: subprocess.Popen[bytes], health: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise BadInput(f"mlflow server ended with code {server.returncode}; what it said stands above")
        with suppress(urllib.error.URLError, ConnectionError), urllib.request.urlopen(health, timeout=5):
            return
        time.sleep(0.2)
    raise BadInput(f"mlflow server did not answer at {health} within {PATIENCE_S:.0f} s")
