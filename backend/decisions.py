"""Following a decision: every part is checked before anything changes for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from backend.request import Phase, Request
from backend.views import RequestFace, face
from policies.api import Decision, InvalidDecision, RequestView

if TYPE_CHECKING:
    from backend.engine import Engine


def follow(engine: Engine, decision: Decision) -> None:
    for view in decision.preempt:
        request = _running(engine, view)
        if request.phase != Phase.ENDING:  # that one gives way by itself
            engine.preempt(request)
    for view, reason in decision.reject:
        request = _waiting(engine, view, "reject")
        engine.end(request, "rejected", "rejected", reason)
    held = decision.hold_until is not None and decision.hold_until > engine.now
    if not held and decision.admit != ():
        _admit(engine, decision.admit, decision.skip_blocked)


def _admit(engine: Engine, wanted: Iterable[RequestView], skip_blocked: bool) -> None:
    """Pull one at a time while there is a slot and budget; stop at the first that does not fit, or skip it."""
    closed, preemptive = engine.batching.closed, engine.policy.preemptive
    passed: set[Request] = set()
    for view in wanted:
        request = _waiting(engine, view, "admit")
        if request in passed:
            raise _invalid(engine, view, "admit", "it was named twice")
        if (not closed and engine.budget <= 0) or (not preemptive and engine.free_slots <= 0):
            engine.asking.cut_short = True
            return
        blocks = None
        if not request.holds and request.evicted_in != engine.round:
            blocks = _fits(engine, request)
            if blocks is None and _make_way(engine, request):
                blocks = _fits(engine, request)
        if blocks is not None:
            engine.admit(request, blocks)
        elif not skip_blocked:
            return
        else:
            passed.add(request)


def _fits(engine: Engine, request: Request) -> int | None:
    """Blocks to take if slot, blocks and admission rule allow `request` now."""
    if engine.free_slots <= 0:
        return None
    blocks = _blocks(engine, request)
    if blocks > engine.pool.free or not engine.admission.allows(request, engine.members, engine.dispatched + 1):
        return None
    return blocks


def _blocks(engine: Engine, request: Request) -> int:
    request.target = request.prompt_tokens + request.base
    if engine.admission.uses_reservations:
        asked = engine.policy.reservation(face(request))
        limit = request.max_tokens
        request.reserved = limit if asked is None else min(max(asked, 1), limit)
    return engine.admission.blocks(request)


def _make_way(engine: Engine, request: Request) -> bool:
    """Preempt for an admission, if the policy names enough victims; room that is on its way counts."""
    members = engine.members
    blocks = _blocks(engine, request)
    slots = engine.free_slots + members.coming_slots
    free = engine.pool.free + members.coming_blocks()
    candidates = {face(r): r for r in members}
    victims: list[Request] = []

    def enough() -> bool:
        staying = (r for r in members if r not in victims)
        return slots > 0 and free >= blocks and engine.admission.allows(request, staying, engine.dispatched + 1)

    while not enough():
        chosen = engine.policy.victim(list(candidates), face(request)) if candidates else None
        if chosen is None:
            return False
        if chosen not in candidates:
            raise _invalid(engine, chosen, "victim", "it is not one of the candidates")
        victim = candidates.pop(chosen)
        victims.append(victim)
        slots += 1
        free += len(victim.table)
    for victim in victims:
        engine.preempt(victim)
    return bool(victims)


def _waiting(engine: Engine, view: RequestView, what: str) -> Request:
    request = _known(engine, view, what)
    if request.phase != Phase.WAITING:
        raise _invalid(engine, view, what, "it runs already, or was named twice")
    return request


def _running(engine: Engine, view: RequestView) -> Request:
    request = _known(engine, view, "preempt")
    if request.phase == Phase.WAITING:
        raise _invalid(engine, view, "preempt", "it does not run, or was named twice")
    return request


def _known(engine: Engine, view: RequestView, what: str) -> Request:
    if isinstance(view, RequestFace):
        request = engine.live.get(view.id)
        if request is not None and request.view is view and request.phase != Phase.DONE:
            return request
    raise _invalid(engine, view, what, "it has ended, or is of another run")


def _invalid(engine: Engine, view: object, what: str, why: str) -> InvalidDecision:
    name = view.id if isinstance(view, RequestView) else repr(view)
    return InvalidDecision(f"{engine.policy_name} wants to {what} request {name}: {why}")
