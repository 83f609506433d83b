"""The table at the end of a sweep, for ``hydra.callbacks``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from bench.terminal import show_sweep


class SweepTable(Callback):
    def __init__(self) -> None:
        self._began = 0.0

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        self._began = time.time()

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        self.show(Path(config.hydra.sweep.dir), self._began)

    def show(self, folder: Path, since: float) -> None:
        show_sweep(folder, since)
