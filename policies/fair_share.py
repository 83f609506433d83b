"""Fair share between tenants by virtual token counters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from heapq import heapify, heappop, heapreplace

import numpy as np

from policies.api import Decision, EngineView, Key, Limits, Policy, PriorityPolicy, RequestView, Time


class _Tenant(PriorityPolicy):
    """A queue in order of arrival, preempted requests in their old places, and the tenant's account."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = 1.0
        self.charged = 0  # all but the output tokens that are counted elsewhere, as they are made
        self.metered: dict[int, RequestView] = {}  # with predictions: who pays for each token, having outrun its own

    def key(self, request: RequestView, now: Time) -> Key:
        return (request.arrival,)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def oldest(self) -> RequestView:
        return self._heap[0][2]

    def in_order(self, view: EngineView) -> Iterator[RequestView]:
        yield from self.decide(view).admit


class FairShare(Policy):
    """The oldest request of the tenant with the least service goes first: virtual token counters.

    Rule (Sheng et al., OSDI'24, arXiv 2401.00588): a counter of tokens per tenant, divided by the tenant's weight when
    compared. It is charged `w_prompt` a prompt token at the first admission (what was never executed is given back when
    the request ends) and `w_output` an output token as it is made. A tenant that comes back to an empty queue is
    lifted to the least counter of those who wait, or else of whose queue emptied last, so that nobody saves up service
    while away. The first that does not fit blocks the rest. Equal counters: submission order.

    `use_predictions`: the predicted output is charged at admission too, each token beyond it as it is made, and what
    was not made is given back when the request ends.
    """

    def __init__(self, w_prompt: int = 1, w_output: int = 2, use_predictions: bool = False) -> None:
        for name, value in (("w_prompt", w_prompt), ("w_output", w_output)):
            if not isinstance(value, int) or value < 0:
                raise ValueError(f"fair_share.{name}: {value!r} is not a whole number >= 0")
        self.w_prompt = w_prompt
        self.w_output = w_output
        self.use_predictions = use_predictions
        self.needs = frozenset({"prediction"}) if use_predictions else frozenset()

    def reset(self, limits: Limits, rng: np.random.Generator) -> None:
        self._tenants: dict[str, _Tenant] = {}
        self._waiting: dict[str, _Tenant] = {}  # those with a queue
        self._last: str | None = None  # whose queue emptied last
        self._promised: dict[int, int] = {}  # number of a begun request -> output tokens charged ahead

    def on_arrival(self, request: RequestView, view: EngineView) -> None:
        tenant = self._tenants.get(request.tenant)
        if tenant is None:
            tenant = self._tenants[request.tenant] = _Tenant()
        tenant.weight = request.weight
        if not tenant:
            self._lift(request.tenant, view)
        self._waiting[request.tenant] = tenant
        tenant.on_arrival(request, view)

    def on_prediction(self, request: RequestView, view: EngineView) -> None:
        if request.output_tokens > self._promised.get(request.number, request.max_tokens):
            self._meter(request)

    def on_admit(self, request: RequestView, view: EngineView) -> None:
        tenant = self._tenants[request.tenant]
        tenant.on_admit(request, view)
        self._note_if_empty(request.tenant)
        if request.preemptions:
            return
        tenant.charged += self._price(request)
        if self.use_predictions:
            self._promised[request.number] = _predicted(request)
            if not _predicted(request):
                self._meter(request)

    def on_preempt(self, request: RequestView, view: EngineView) -> None:
        self._waiting[request.tenant] = self._tenants[request.tenant]
        self._tenants[request.tenant].on_preempt(request, view)

    def on_finish(self, request: RequestView, reason: str, view: EngineView) -> None:
        tenant = self._tenants[request.tenant]
        waited = len(tenant)
        tenant.on_finish(request, reason, view)
        if len(tenant) < waited:
            self._note_if_empty(request.tenant)
            if not request.preemptions:
                return
        if not request.output_tokens:
            tenant.charged -= self.w_prompt * max(0, request.prompt_tokens - request.computed_tokens)
        if self.use_predictions:
            tenant.metered.pop(request.number, None)
            tenant.charged += self.w_output * (request.output_tokens - self._promised.pop(request.number, 0))

    def decide(self, view: EngineView) -> Decision:
        return Decision(admit=self._in_order(view))

    def counter(self, name: str, view: EngineView) -> int:
        """Service of a known tenant so far, in weighted tokens, lifts included; not divided by its weight."""
        tenant = self._tenants[name]
        if self.use_predictions:
            made = sum(request.output_tokens for request in tenant.metered.values())
        else:
            made = view.served(name).output
        return tenant.charged + self.w_output * made

    def _in_order(self, view: EngineView) -> Iterator[RequestView]:
        """Charges what it yields to copies of the counters, so that slots opened at once are shared too."""
        heads = []
        for name, tenant in self._waiting.items():
            oldest, counter = tenant.oldest, self.counter(name, view)
            heads.append((counter / tenant.weight, oldest.number, oldest, counter, tenant, tenant.in_order(view)))
        heapify(heads)
        while heads:
            _, _, request, counter, tenant, queue = heads[0]
            counter += 0 if request.preemptions else self._price(request)
            yield request
            following = next((other for other in queue if other is not request), None)
            if following is None:
                heappop(heads)
            else:
                heapreplace(heads, (counter / tenant.weight, following.number, following, counter, tenant, queue))

    def _price(self, request: RequestView) -> int:
        """What the first admission charges."""
        ahead = _predicted(request) if self.use_predictions else 0
        return self.w_prompt * request.prompt_tokens + self.w_output * ahead

    def _lift(self, name: str, view: EngineView) -> None:
        others = self._waiting or ([] if self._last is None else [self._last])
        level = min((self.counter(other, view) / self._tenants[other].weight for other in others), default=-math.inf)
        own, weight = self.counter(name, view), self._tenants[name].weight
        if level > own / weight:
            self._tenants[name].charged += round(level * weight) - own

    def _note_if_empty(self, name: str) -> None:
        if not self._tenants[name]:
            del self._waiting[name]
            self._last = name

    def _meter(self, request: RequestView) -> None:
        """Give back what was charged ahead; from now on each token made counts."""
        tenant = self._tenants[request.tenant]
        tenant.charged -= self.w_output * self._promised.pop(request.number)
        tenant.metered[request.number] = request


def _predicted(request: RequestView) -> int:
    """Output tokens, at most `max_tokens`; 0 where nothing is known."""
    prediction = request.prediction
    if prediction is None or math.isnan(prediction.expected):
        return 0
    return math.ceil(min(prediction.expected, request.max_tokens))
