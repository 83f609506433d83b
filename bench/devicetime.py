"""What the device did with the time of the window."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from backend.records import Records
from bench.population import Population, Window
from bench.spans import common, union
from bench.stepclock import StepClock


class DeviceTime(NamedTuple):
    """Picoseconds of the window: busy + stalled + empty is all of it, exactly."""

    busy: int
    stalled: int  # the device had nothing to run, though a request was waiting or running
    empty: int  # nothing to run, and no request
    hold: int  # the part of `stalled` in which the policy or the batch timeout chose to wait


def device_time(records: Records, people: Population, clock: StepClock, window: Window) -> DeviceTime:
    live = people.live().clip(window.start, window.end)
    held = union(records.holds["since"].to_numpy(np.int64), records.holds["until"].to_numpy(np.int64))
    held = common((held, live))
    busy = int(np.diff(clock.busy_by([window.start, window.end]))[0])
    busy_live = clock.busy_in(live)
    stalled = live.length - busy_live
    return DeviceTime(busy, stalled, window.duration - busy - stalled, held.length - clock.busy_in(held))
