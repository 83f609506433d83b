"""Multi-bin batching: batches of requests whose outputs are about equally long."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

import numpy as np

from policies.api import Decision, EngineView, Limits, Policy, RequestView, Time
from policies.bin_edges import check_edges, make_edges


@dataclass(slots=True, eq=False)
class _Batch:
    bin: int
    formed: Time | None = None  # None while it fills
    oldest: Time = 0  # arrival of its first member
    members: OrderedDict[RequestView, None] = field(default_factory=OrderedDict)


class MultiBin(Policy):
    """Requests of like predicted length wait together; full batches go, the first formed first.

    Rule (Guldogan et al., arXiv 2412.04504): a request joins the first bin whose upper edge is at least its prediction,
    and a bin that holds `batch_size` becomes a batch. Static and dynamic batching run one batch at a time; continuous
    batching takes from all of them, in the order of forming or, `bin_by_bin`, the shorter bins' first.
    Beside the paper's rule:

    - a bin whose oldest member arrived `max_wait_s` ago is a batch as it stands;
    - a new prediction moves a request as long as it waits in a bin; a batch stays as it was formed;
    - a NaN prediction belongs to the last bin; a request not predicted yet waits apart, at most `max_wait_s`;
    - preempted requests go first, in order of arrival (static, dynamic: at the head of the next batch);
    - if only part of a batch finds room, the rest stays a batch.
    """

    needs = frozenset({"prediction"})

    def __init__(
        self,
        bins: int = 4,
        edges: str | Sequence[float] = "equal_mass",
        mean: float | None = None,
        order: str = "formed",
        batch_size: int | None = None,
        max_wait_s: float = 1.0,
        history: int = 1000,
    ) -> None:
        """`edges`: "equal_mass" (quantiles of the last `history` predictions), "exponential" (the best ones for
        exponential lengths of `mean` tokens), or upper edges in tokens, that of the last bin included or not.
        `batch_size` None: `max_num_seqs`.
        """
        for name, value in (("bins", bins), ("history", history), ("batch_size", batch_size)):
            if value is not None and value < 1:
                raise ValueError(f"multi_bin.{name}: {value} is not >= 1")
        check_edges(edges, bins, mean, "multi_bin")
        if order not in ("formed", "bin_by_bin"):
            raise ValueError(f"multi_bin.order: {order!r} is neither formed nor bin_by_bin")
        if not 0 <= max_wait_s <= 1e6:
            raise ValueError(f"multi_bin.max_wait_s: {max_wait_s} is not within 0 .. 1e6")
        self.bins = bins
        self.edges = edges
        self.mean = mean
        self.order = order
        self.batch_size = batch_size
        self.max_wait_s = max_wait_s
        self.history = history

    def reset(self, limits: Limits, rng: np.random.Generator) -> None:
        self._size = limits.max_num_seqs if self.batch_size is None else self.batch_size
        self._one_batch = limits.batching != "continuous"
        if self._one_batch and self._size > limits.max_num_seqs:
            raise ValueError(f"multi_bin.batch_size: {self._size} is more than max_num_seqs = {limits.max_num_seqs}")
        self._max_wait: Time = round(self.max_wait_s * 10**12)
        self._edges = make_edges(self.edges, self.bins, self._size, self.mean, self.history)
        self._filling = [_Batch(bin) for bin in range(self.bins + 1)]  # the last: not predicted yet, never full
        lanes = 1 if self.order == "formed" else self.bins + 1
        self._formed: list[OrderedDict[_Batch, None]] = [OrderedDict() for _ in range(lanes)]
        self._preempted = _Batch(-1)
        self._batch_of: dict[RequestView, _Batch] = {}

    def on_arrival(self, request: RequestView, view: EngineView) -> None:
        self._join(request, self._filling[self.bins])

    def on_prediction(self, request: RequestView, view: EngineView) -> None:
        batch, prediction = self._batch_of.get(request), request.prediction
        if batch is None or batch.formed is not None or batch is self._preempted or prediction is None:
            return
        self._edges.learn(prediction.expected)
        better = self._filling[self._edges.bin(prediction.expected)]
        if better is not batch:
            self._leave(request)
            self._join(request, better)
            if len(better.members) == self._size:
                self._form(better, view.now)

    def on_admit(self, request: RequestView, view: EngineView) -> None:
        batch = self._batch_of[request]
        if batch is self._filling[batch.bin]:  # it had waited long enough
            self._form(batch, self._due(batch))
            self._lane(batch).move_to_end(batch, last=False)
        self._leave(request)

    def on_preempt(self, request: RequestView, view: EngineView) -> None:
        self._join(request, self._preempted)

    def on_finish(self, request: RequestView, reason: str, view: EngineView) -> None:
        if request in self._batch_of:
            self._leave(request)

    def decide(self, view: EngineView) -> Decision:
        ready: list[_Batch] = []
        for lane in self._formed:
            if lane:
                ready += islice(lane, self._most(view))
        now, wait = view.now, self._max_wait
        next_due: Time | None = None
        for batch in self._filling:
            if batch.members:
                due = batch.oldest + wait
                if due <= now:
                    ready.append(batch)
                elif next_due is None or due < next_due:
                    next_due = due
        if not ready and not self._preempted.members:
            return Decision(revisit_at=next_due)
        going = [self._preempted, *sorted(ready, key=self._place)[: self._most(view)]]
        return Decision(chain.from_iterable(map(self._members, going)), revisit_at=next_due)

    def reservation(self, request: RequestView) -> int | None:
        """The upper edge of the bin of its prediction; None (`max_tokens`) where there is none."""
        upper = math.inf if request.prediction is None else self._edges.upper(request.prediction.expected)
        return None if upper >= request.max_tokens else math.ceil(upper)

    def _most(self, view: EngineView) -> int:
        """No more batches than admissions."""
        return 1 if self._one_batch else view.free_slots

    def _join(self, request: RequestView, batch: _Batch) -> None:
        if not batch.members:
            batch.oldest = request.arrival
        batch.members[request] = None
        self._batch_of[request] = batch

    def _leave(self, request: RequestView) -> None:
        batch = self._batch_of.pop(request)
        del batch.members[request]
        if batch.members:
            batch.oldest = next(iter(batch.members)).arrival
        elif batch.formed is not None:
            del self._lane(batch)[batch]

    def _form(self, batch: _Batch, now: Time) -> None:
        batch.formed = now
        self._lane(batch)[batch] = None
        self._filling[batch.bin] = _Batch(batch.bin)

    def _lane(self, batch: _Batch) -> OrderedDict[_Batch, None]:
        return self._formed[min(batch.bin, len(self._formed) - 1)]

    def _due(self, batch: _Batch) -> Time:
        """Since when it is a batch, or from when it will be one as it stands."""
        return batch.oldest + self._max_wait if batch.formed is None else batch.formed

    def _place(self, batch: _Batch) -> tuple[int, Time]:
        return (0 if self.order == "formed" else batch.bin, self._due(batch))

    def _members(self, batch: _Batch) -> list[RequestView]:
        members = list(batch.members)  # a copy: they leave while the engine goes through them
        return sorted(members, key=lambda r: (r.arrival, r.number)) if batch is self._preempted else members
