"""One batch as tensors where the model is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from backend.torch_device.step_inputs import StepInputs


@dataclass(slots=True)
class StepTensors:
    """The arrays of `StepInputs`, int64 all of them; see there for the shapes."""

    host: StepInputs
    """Where they come from: sizes, and what else the host may know without asking the device."""
    ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    starts: torch.Tensor
    tables: torch.Tensor
    sampled: torch.Tensor
    contexts: torch.Tensor
    tiles: torch.Tensor


def arrays_of(step: StepInputs, tile: int) -> list[npt.NDArray[np.int32]]:
    """What `StepTensors` holds, in its order, with the rows of each sequence in tiles of at most `tile`; 0: none."""
    tiles = tiles_of(step.starts, tile) if tile else np.zeros((0, 2), dtype=np.int32)
    return [step.ids, step.positions, step.slots, step.starts, step.tables, step.sampled, step.contexts, tiles]


def tiles_of(starts: npt.NDArray[np.int32], tile: int) -> npt.NDArray[np.int32]:
    """(T, 2): a sequence, and the first of up to `tile` rows of it, counted from its first row."""
    counts = -(-np.diff(starts) // tile)
    owner = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    number = np.arange(len(owner), dtype=np.int32) - np.repeat(np.cumsum(counts, dtype=np.int32) - counts, counts)
    return np.stack([owner, number * tile], axis=1).astype(np.int32)


def tensors_of(step: StepInputs, tile: int, device: torch.device) -> StepTensors:
    """At once, each array by itself: where no step is to be overlapped."""
    return StepTensors(step, *(torch.from_numpy(a).to(device, torch.long) for a in arrays_of(step, tile)))


def wrap(step: StepInputs, tensors: Sequence[torch.Tensor]) -> StepTensors:
    """Tensors in the order of `arrays_of`."""
    return StepTensors(step, *tensors)
