"""Shortest predicted first: what predictions are compared on."""

from __future__ import annotations

import math

from policies.api import Key, PriorityPolicy, RequestView, Time


class SSJF(PriorityPolicy):
    """The shortest predicted output goes first; a request not predicted yet goes last.

    Speculative shortest-job-first (Qiu et al., arXiv 2404.08509); the key is the whole length, not what is left of it.
    Long requests starve under overload. Under admission=reserve|peak a request holds what `upper` says.
    """

    needs = frozenset({"prediction"})

    def key(self, request: RequestView, now: Time) -> Key:
        return (math.inf if request.prediction is None else request.prediction.expected,)

    def reservation(self, request: RequestView) -> int | None:
        if request.prediction is None or not request.prediction.upper < request.max_tokens:
            return None
        return math.ceil(request.prediction.upper)
