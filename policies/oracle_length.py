"""Shortest first, with lengths that no real server knows."""

from __future__ import annotations

from policies.api import Key, PriorityPolicy, RequestView, Time


class OracleLength(PriorityPolicy):
    """The shortest true output goes first: what shortest-job-first could gain if predictions were perfect.

    The key is the whole length, not what is left of it, and never changes. Long requests starve under overload.
    """

    needs = frozenset({"oracle"})

    def key(self, request: RequestView, now: Time) -> Key:
        return (request.true_output_tokens,)

    def reservation(self, request: RequestView) -> int:
        return request.true_output_tokens
