"""Devices that can be made by name, with nothing given: entry points of group ``batchyard.devices``."""

from __future__ import annotations

from backend.costs import ConstantCost
from backend.realtime import RealTimeDevice
from backend.simulated import SimulatedDevice


def simulated(
    step_ms: float = 10.0, num_blocks: int = 256, block_size: int = 16, max_model_len: int = 2048
) -> SimulatedDevice:
    """In virtual time, `step_ms` for every batch."""
    cost = ConstantCost(step_ms)
    return SimulatedDevice(cost, num_blocks=num_blocks, block_size=block_size, max_model_len=max_model_len)


def realtime(
    step_ms: float = 2.0, num_blocks: int = 256, block_size: int = 16, max_model_len: int = 2048
) -> RealTimeDevice:
    """In real time, `step_ms` for every batch."""
    cost = ConstantCost(step_ms)
    return RealTimeDevice(cost, num_blocks=num_blocks, block_size=block_size, max_model_len=max_model_len)
