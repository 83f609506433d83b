"""From a backend's config to what executes: the entry point."""

from __future__ import annotations

from pathlib import Path

from backend.realtime import RealTimeDevice
from bench.backends.api import Backend
from bench.backends.config import InstalledConfig, RealTimeConfig, SimulatedConfig, TorchConfig
from bench.backends.gpu import Simulated, gpu
from bench.backends.real import RealModel
from bench.backends.served import Served, drawn
from bench.devices import make
from bench.errors import BadInput


def build_backend(config: object, base: Path) -> Backend:
    """The caller shuts its device down. Relative paths start at `base`. Raises BadInput, naming the key."""
    match config:
        case SimulatedConfig():
            return Simulated(config)
        case RealTimeConfig():
            return Served(gpu(config, RealTimeDevice), config.horizon_s)
        case TorchConfig():
            return RealModel(config, base)
        case InstalledConfig():
            config.sampling.check()
            return Served(make(config.name, config.settings), config.horizon_s, drawn(config.sampling))
    raise BadInput("backend: there are backend=simulated, realtime, torch and installed")
