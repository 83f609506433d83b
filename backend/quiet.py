"""Quiet steps: how far everybody can be advanced at once, and doing it.

Nothing happens in a quiet step but that each decode makes a token; all of that follows from the numbers of batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backend.api import Batch
from policies.api import Time

if TYPE_CHECKING:
    from backend.engine import Engine


def horizon(engine: Engine, stop: int) -> int:
    """How many further steps (one dispatched, one committed, each) change nothing but counts; a lower bound.

    To be asked right after a commit; `stop` is the first batch in which the device may stop somebody.
    """
    members = engine.members
    if not members.steady:
        return 0
    if members.flights and members.flights[-1].version != engine.version:
        return 0
    if engine.waiting.size and _may_ask_soon(engine):
        return 0
    ahead = [stop, members.next_end(), engine.watches.next_batch()]
    step = engine.asking.revisit_step
    if step is not None and engine.waiting.size:
        ahead.append(step - 1)
    quiet = min(batch for batch in ahead if batch is not None) - 1 - engine.committed
    return min(quiet, _steps_with_blocks(engine, quiet))


def quiet_batch(engine: Engine) -> Batch:
    """What the next step would dispatch, within the horizon."""
    number = engine.dispatched + 1
    return Batch(number, engine.members.decodes.keys(), (), engine.padding, engine.members.context_tokens(number))


def skip(engine: Engine, steps: int) -> list[int]:
    """Go `steps` on within the horizon; returns the blocks allocated in each of them."""
    members = engine.members
    allocated = []
    for batch in range(engine.dispatched + 1, engine.dispatched + steps + 1):
        members.grow(batch)
        allocated.append(engine.pool.allocated)
    engine.dispatched += steps
    engine.committed += steps
    members.kv_tokens += steps * len(members.decodes)
    for flight in members.flights:
        flight.number += steps
    return allocated


def skipped_to(engine: Engine, now: Time, device_end: Time) -> None:
    """The last skipped step was committed at `now`; the device had finished it at `device_end`."""
    engine.now = engine.last_commit = now
    engine.last_device_end = device_end


def _may_ask_soon(engine: Engine) -> bool:
    if engine.batching.closed:
        return False
    asking = engine.asking
    due = asking.changed or asking.cut_short or asking.due(engine.now, engine.dispatched + 1)
    return due and (engine.free_slots > 0 or engine.policy.preemptive)


def _steps_with_blocks(engine: Engine, steps: int) -> int:
    """How many of the next `steps` find blocks for everybody."""
    free, decodes, size = engine.pool.free, len(engine.members.decodes), engine.pool.block_size
    if free >= decodes * (steps // size + 1):
        return steps
    for step in range(steps):
        free -= len(engine.members.rings.at(engine.dispatched + 1 + step))
        if free < 0:
            return step
    return steps
