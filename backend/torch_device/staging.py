"""Memory that steps use by turns: while one computes, the next one's inputs are copied, and the last one's results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

ALIGNED = 8  # numbers of 8 bytes: each part begins at a multiple of 64 bytes


class InTurns:
    """Two pieces of memory for int64, each as large as was needed so far; step n has the one of its parity.

    A step may have one once the step two before it is over.
    """

    def __init__(self, make: Callable[[int], torch.Tensor]) -> None:
        self._make = make
        self._pieces = [make(0), make(0)]

    def of(self, step: int, size: int) -> torch.Tensor:
        """(size,)"""
        if len(self._pieces[step % 2]) < size:
            self._pieces[step % 2] = self._make(2 * size)
        return self._pieces[step % 2][:size]


@dataclass(slots=True)
class Parcel:
    """Arrays of one step on their way to the device."""

    host: torch.Tensor
    device: torch.Tensor
    parts: list[torch.Tensor]
    """Of `device`; int64 for integers, float64 for floats. Filled by `copy`."""

    def copy(self) -> None:
        self.device.copy_(self.host, non_blocking=True)


class Staging:
    def __init__(self, place: torch.device) -> None:
        self._host = InTurns(_host_memory(place))
        self._device = InTurns(lambda size: torch.empty(size, dtype=torch.long, device=place))

    def pack(self, step: int, arrays: Sequence[npt.NDArray[Any]]) -> Parcel:
        """All in one copy."""
        begins = np.cumsum([0] + [-(-array.size // ALIGNED) * ALIGNED for array in arrays]).tolist()
        host, device = self._host.of(step, begins[-1]), self._device.of(step, begins[-1])
        numbers, parts = host.numpy(), []
        for array, begin in zip(arrays, begins, strict=False):
            floats = array.dtype.kind == "f"
            flat = array.astype(np.float64).view(np.int64) if floats else array
            numbers[begin : begin + array.size] = flat.ravel()
            part = device[begin : begin + array.size].view(array.shape)
            parts.append(part.view(torch.float64) if floats else part)
        return Parcel(host, device, parts)


class Landing:
    """Where sampled ids arrive on the host."""

    def __init__(self, place: torch.device) -> None:
        self._host = InTurns(_host_memory(place))

    def of(self, step: int, size: int) -> torch.Tensor:
        return self._host.of(step, size)


def _host_memory(place: torch.device) -> Callable[[int], torch.Tensor]:
    """Pinned where a copy from and to `place` is then done without the processor."""

    def make(size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.long, pin_memory=place.type == "cuda" and size > 0)

    return make
