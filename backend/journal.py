"""Rows that the engine writes as things happen; `backend/steps.py` keeps those of the steps."""

from __future__ import annotations

from math import isfinite

from backend.records import (
    BACKLOG_COLUMNS,
    FINISH_REASONS,
    GAP_COLUMNS,
    REQUEST_COLUMNS,
    SERVICE_COLUMNS,
    STATES,
    Table,
)
from backend.request import Request
from backend.tenants import Tenant
from policies.api import Time


class Journal:
    def __init__(self) -> None:
        self.requests = Table(REQUEST_COLUMNS)
        self.service = Table(SERVICE_COLUMNS)
        self.backlog = Table(BACKLOG_COLUMNS)
        self.gaps = Table(GAP_COLUMNS)
        self.details: dict[int, str] = {}
        """Number -> why a request was refused or rejected."""

    def request(self, r: Request) -> None:
        """The request has reached its end and holds nothing any more."""
        first = r.first_prediction
        if r.detail:
            self.details[r.number] = r.detail
        self.requests.append(
            (
                r.number,
                r.row,
                r.arrival,
                r.submitted,
                r.prompt_tokens,
                r.max_tokens,
                -1 if first is None else _rounded(first.expected),
                -1 if first is None else _rounded(first.upper),
                STATES.index(r.state),
                FINISH_REASONS.index(r.finish_reason),
                r.base,
                r.base + r.made,
                r.scheduled,
                r.first_token,
                r.last_token,
                r.ended,
                r.preempted_wait,
                r.preemptions,
                r.longest_gap,
                r.cancel_called,
                r.last_made,
                r.freed,
            )
        )

    def decoded(self, tenant: Tenant, first: int, last: int) -> None:
        self.service.append((tenant.index, first, last, 0, 1))

    def prefilled(self, tenant: Tenant, batch: int, tokens: int) -> None:
        self.service.append((tenant.index, batch, batch, tokens, 0))

    def resumed(self, r: Request, now: Time) -> None:
        """The first token after a preemption is out."""
        gap = now - r.last_token
        r.longest_gap = max(r.longest_gap, gap)
        self.gaps.append((r.number, gap, now))

    def waits(self, tenant: Tenant, now: Time) -> None:
        tenant.waiting += 1
        if tenant.waiting == 1:
            tenant.backlog_since = now

    def waits_no_more(self, tenant: Tenant, now: Time) -> None:
        tenant.waiting -= 1
        if tenant.waiting == 0:
            self.backlog.append((tenant.index, tenant.backlog_since, now))


def _rounded(tokens: float) -> int:
    return round(tokens) if isfinite(tokens) else -1
