"""What holds after every commit, whatever the policy does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backend.errors import EngineBroken

if TYPE_CHECKING:
    from backend.engine import Engine


def check(engine: Engine) -> None:
    """O(1) after every commit; the full recount where the configuration asks for it."""
    members, pool = engine.members, engine.pool
    if pool.free + pool.allocated != pool.num_blocks:
        raise EngineBroken(f"{pool.free} free + {pool.allocated} owned is not {pool.num_blocks} blocks")
    if engine.submitted != engine.ended + engine.waiting.size + members.count:
        raise EngineBroken(
            f"{engine.submitted} requests submitted, {engine.ended} ended, {engine.waiting.size} wait, "
            f"{members.count} run"
        )
    if pool.allocated and not members.slots:
        raise EngineBroken(f"{pool.allocated} blocks are allocated and nobody runs")
    if engine.config.audit:
        engine.pool.audit(members.owned_tables())
