"""Blocks for the running: grow who needs one, and preempt when they run out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backend.request import Request
from backend.views import face
from policies.api import InvalidDecision, RequestView

if TYPE_CHECKING:
    from backend.engine import Engine


def make_room(engine: Engine, batch: int) -> bool:
    """A block for everyone who needs one in `batch`; False: nothing can be planned until something commits.

    Blocks of those that have left count as coming, so that no more is preempted under overlap than in turn.
    """
    pool, members = engine.pool, engine.members
    ring = members.rings.at(batch)
    if len(ring) <= pool.free:
        if ring:
            members.grow(batch)
        return True
    needy = _needy(engine, batch)
    if len(needy) > pool.free:
        while len(needy) > (room := pool.free + members.coming_blocks()):
            engine.preempt(_victim(engine, needy[room]))
            engine.shortage_round = engine.round
            needy = _needy(engine, batch)
        if len(needy) > pool.free:
            return False
    pool.grow([request.table for request in needy])
    return True


def _needy(engine: Engine, batch: int) -> list[Request]:
    """Decodes whose blocks are full, the oldest first."""
    size = engine.pool.block_size
    needy = [r for r in engine.members.rings.at(batch) if len(r.table) * size <= r.position(batch)]
    needy.sort(key=lambda r: (r.arrival, r.number))
    return needy


def _victim(engine: Engine, wanted: Request) -> Request:
    oldest = engine.members.oldest()
    candidates = {face(r): r for r in engine.members if r is not oldest}
    chosen: RequestView | None = engine.policy.victim(list(candidates), face(wanted))
    if chosen is None or chosen not in candidates:
        raise InvalidDecision(
            f"{engine.policy_name}.victim chose {chosen} when request {wanted.id} needs a block; it must choose one of "
            f"{', '.join(r.id for r in candidates.values())}"
        )
    return candidates[chosen]
