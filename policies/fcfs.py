"""First come, first served."""

from __future__ import annotations

from policies.api import Key, PriorityPolicy, RequestView, Time


class FCFS(PriorityPolicy):
    """The one who arrived first goes first; a preempted request keeps its arrival, and so its place (Orca, vLLM)."""

    def key(self, request: RequestView, now: Time) -> Key:
        return (request.arrival,)
