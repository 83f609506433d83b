"""Tokens and service of a request, from one admission to its end or a preemption."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backend.api import Chunk
from backend.members import Late
from backend.request import Phase, Request

if TYPE_CHECKING:
    from backend.engine import Engine, Events


def settle(engine: Engine, request: Request) -> None:
    """Turn the counts that follow from batch numbers into plain ones: the spell is over."""
    if request.anchor and engine.committed >= request.anchor:
        last = engine.committed
        if request.phase == Phase.ENDING:
            last = min(last, request.last_batch)
        request.base += last - request.anchor + 1
        request.last_token = engine.last_commit
        request.last_made = engine.last_device_end
        tenant = request.account
        tenant.stops_decoding(last)
        engine.journal.decoded(tenant, request.anchor, last)
    request.anchor = 0
    request.epoch += 1


def credit_prompt(engine: Engine, chunk: Chunk, request: Request) -> None:
    """Prompt tokens executed for the first time count as service, also if a preemption has dropped their KV."""
    fresh = min(chunk.start + chunk.count, request.prompt_tokens) - request.prompt_done
    if fresh > 0:
        request.prompt_done += fresh
        tenant = request.account
        tenant.prompt += fresh
        engine.journal.prefilled(tenant, engine.committed, fresh)


def begin_spell(engine: Engine, request: Request) -> None:
    """The first token since it was admitted is out."""
    if request.first_token < 0:
        request.first_token = engine.now
    elif request.preemptions and request.last_token >= 0:
        engine.journal.resumed(request, engine.now)


def commit_late(engine: Engine, late: Late, batch: int, events: Events) -> None:
    """The token that was in flight when the request was preempted; dropped if it has ended since."""
    request = late.request
    if request.phase == Phase.DONE:
        request.made += 1
        if not late.first_of_spell:
            events.tokens -= 1
            events.gaps -= 1
        return
    if late.first_of_spell:
        events.tokens += 1
        begin_spell(engine, request)
    request.base += 1
    request.last_token = engine.now
    request.last_made = engine.last_device_end
    tenant = request.account
    tenant.output += 1
    engine.journal.decoded(tenant, batch, batch)
    if engine.watches.wanted(request) == request.base:
        events.reached = [*events.reached, request]
