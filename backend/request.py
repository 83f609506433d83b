"""One request inside the engine.

A decoding request is in every batch from its anchor on, so nothing is written per token: how many tokens it has
follows from the number of the batch.
"""

from __future__ import annotations

from typing import Final

from backend.tenants import Tenant
from policies.api import RequestView, Time
from predictors.api import Prediction


class Phase:
    """Plain integers: looking up a member of an enum takes five times as long in Python 3.11."""

    WAITING: Final = 0
    PREFILL: Final = 1
    DECODE: Final = 2
    ENDING: Final = 3  # its last batch by length is in flight
    DONE: Final = 4


class Request:
    __slots__ = (
        "account",
        "anchor",
        "arrival",
        "base",
        "cancel_called",
        "computed",
        "deadline",
        "detail",
        "ended",
        "epoch",
        "evicted_in",
        "finish_reason",
        "first_prediction",
        "first_token",
        "freed",
        "holds",
        "id",
        "last_batch",
        "last_made",
        "last_token",
        "longest_gap",
        "made",
        "max_tokens",
        "number",
        "phase",
        "planned",
        "prediction",
        "preempted_wait",
        "preemptions",
        "priority",
        "prompt_done",
        "prompt_tokens",
        "reserved",
        "row",
        "scheduled",
        "state",
        "submitted",
        "table",
        "target",
        "tenant",
        "unlimited",
        "user",
        "view",
        "wait_since",
        "waited",
        "weight",
    )

    def __init__(
        self,
        id: str,
        tenant: str,
        prompt_tokens: int,
        max_tokens: int | None,
        arrival: Time,
        *,
        row: int = -1,
        user: str = "",
        weight: float = 1.0,
        priority: int = 0,
        deadline: Time | None = None,
        prediction: Prediction | None = None,
    ) -> None:
        self.id = id
        self.tenant = tenant
        self.prompt_tokens = prompt_tokens
        self.unlimited = max_tokens is None
        self.max_tokens = -1 if max_tokens is None else max_tokens
        self.arrival = arrival
        self.row = row
        self.user = user
        self.weight = weight
        self.priority = priority
        self.deadline = deadline
        self.prediction = prediction
        self.first_prediction = prediction
        self.view: RequestView | None = None
        self.account: Tenant  # of its tenant; from submission on
        self.number = -1
        self.phase: int = Phase.WAITING
        self.state = ""  # once ended: of records.STATES
        self.finish_reason = ""
        self.detail = ""
        # the spell of running, from admission to the end or a preemption
        self.epoch = 0  # spells ended so far: marks stale heap entries
        self.base = 0  # output tokens committed before this spell
        self.target = 0  # tokens to prefill: prompt and output so far
        self.planned = 0  # of those, in dispatched batches
        self.computed = 0  # of those, committed
        self.anchor = 0  # number of the batch with the last chunk; 0: not planned yet
        self.last_batch = 0  # last batch that holds it, as far as planned chunks or its end by length tell
        self.reserved = 0  # output tokens that admission counted on
        self.table: list[int] = []
        self.holds = False  # occupies a slot, until the last batch that holds it commits
        self.evicted_in = 0  # round
        self.prompt_done = 0  # prompt tokens ever executed
        # its history
        self.submitted = -1
        self.wait_since = arrival
        self.waited = 0
        self.preempted_wait = 0
        self.preemptions = 0
        self.scheduled = -1
        self.first_token = -1
        self.last_token = -1
        self.longest_gap = -1
        self.made = 0  # tokens made and dropped after a cancel
        self.last_made = -1
        self.cancel_called = -1
        self.ended = -1
        self.freed = -1

    def position(self, batch: int) -> int:
        """Index of the token that a decode feeds in batch number `batch`."""
        return self.target + batch - self.anchor - 1

    def outputs(self, committed: int) -> int:
        """Output tokens once batch number `committed` is committed."""
        if not self.anchor or committed < self.anchor:
            return self.base
        if self.phase == Phase.ENDING and committed > self.last_batch:
            committed = self.last_batch
        return self.base + committed - self.anchor + 1

    def written(self, batch: int) -> int:
        """KV tokens in its blocks once batch number `batch` is committed."""
        if self.anchor and batch >= self.anchor:
            return self.target + batch - self.anchor
        return self.computed
