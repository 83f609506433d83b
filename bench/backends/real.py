"""A real model from its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from backend.api import Device
from backend.config import EngineConfig
from backend.simulation import Progress
from backend.traffic import NONE, Traffic
from bench.backends.config import TorchConfig
from bench.backends.rehearsal import rehearsed
from bench.backends.served import Served, drawn
from bench.errors import BadInput


class RealModel(Served):
    def __init__(self, config: TorchConfig, base: Path) -> None:
        """Loads the model, which takes seconds. Raises BadInput, naming the key, if it cannot be run."""
        config.check()
        self.config = config
        self._base = base
        super().__init__(_device(config, base), config.horizon_s, drawn(config.sampling))

    def rehearse(self, traffic: Traffic, engine: EngineConfig, progress: Progress | None) -> Traffic:
        config = self.config
        if config.rehearsals is None or (traffic.output_tokens != NONE).all():
            return traffic
        kind = self.device.capabilities.kind
        about = (config.model, config.dtype, kind, config.chat, config.sampling, engine.max_model_len)
        uncut = Served(self.device, None, self.sampling)
        return rehearsed(traffic, uncut, engine, self._base / config.rehearsals, repr(about), progress)


def _device(config: TorchConfig, base: Path) -> Device:
    source = _source(config.model, base)
    try:
        return _load(config, source)
    except BadInput:
        raise
    except OSError as error:
        unknown = "" if Path(source).is_dir() else f"{source!r} is no folder here, and from the hub: "
        raise BadInput(f"backend.model: {unknown}{error}") from error
    except ValueError as error:
        raise BadInput(f"backend.model: {error}") from error


def _load(config: TorchConfig, source: str) -> Device:
    from backend.torch_device.where import cuda_missing  # only here: a simulated run needs no torch

    missing = cuda_missing()
    if config.device == "cuda" and missing:
        raise BadInput(f"backend.device: no cuda here: {missing}; choose backend.device=cpu")
    from backend.torch_device.cuda_device import CudaDevice
    from backend.torch_device.device import TorchDevice
    from backend.torch_progress import bars_for_a_person

    settings: dict[str, Any] = {
        "dtype": config.dtype,
        "num_blocks": config.num_blocks,
        "block_size": config.block_size,
        "kv_memory": config.kv_memory,
        "max_model_len": config.max_model_len,
        "chat": config.chat,
    }
    with bars_for_a_person():
        if config.device == "cpu" or missing:
            return TorchDevice(source, threads=config.threads, **settings)
        return CudaDevice(source, graph_seqs=config.graph_seqs, **settings)


def _source(model: str, base: Path) -> str:
    """A folder in full, or a name as it is. What can only be a path has to be there: no hub is asked for it."""
    folder = base / Path(model).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise BadInput(f"backend.model: {folder} has no config.json: not a model that transformers has saved")
        return str(folder)
    if model.startswith(("/", ".", "~")) or model.count("/") > 1:
        raise BadInput(f"backend.model: there is no folder {folder}")
    return model
