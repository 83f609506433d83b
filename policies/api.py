"""The policy contract: what a scheduling policy sees, and what it may decide.

Read this page, then ``policies/fcfs.py``. A policy is a class with one method that answers one question,
"what else should happen now?"; the engine owns memory and correctness and checks every answer.
The same object runs on the simulated GPU and on a real device.
"""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from predictors.api import Prediction

Time = int
"""Integer picoseconds since the run began."""

Key = tuple[Any, ...]


class RequestView(ABC):
    """One request, read-only and live: every property is current when it is read."""

    __slots__ = ()

    @property
    @abstractmethod
    def id(self) -> str: ...

    @property
    @abstractmethod
    def number(self) -> int:
        """Submission order, unique; the last key of every order."""

    @property
    @abstractmethod
    def tenant(self) -> str: ...

    @property
    @abstractmethod
    def user(self) -> str: ...

    @property
    @abstractmethod
    def weight(self) -> float:
        """Share of service that the tenant is entitled to, relative to the others; > 0."""

    @property
    @abstractmethod
    def priority(self) -> int:
        """Smaller is more urgent."""

    @property
    @abstractmethod
    def deadline(self) -> Time | None: ...

    @property
    @abstractmethod
    def arrival(self) -> Time:
        """Scheduled arrival; kept through preemptions."""

    @property
    @abstractmethod
    def prompt_tokens(self) -> int: ...

    @property
    @abstractmethod
    def max_tokens(self) -> int:
        """The client's limit on output tokens, clipped to what the model can hold."""

    @property
    @abstractmethod
    def computed_tokens(self) -> int:
        """Tokens whose KV is in the cache as of the last commit; 0 after a preemption."""

    @property
    @abstractmethod
    def output_tokens(self) -> int:
        """Tokens committed so far."""

    @property
    @abstractmethod
    def in_flight_tokens(self) -> int:
        """Tokens that dispatched batches will make and that are not committed yet."""

    @property
    @abstractmethod
    def waited(self) -> Time:
        """Time spent in the queue so far, waits after preemptions included."""

    @property
    @abstractmethod
    def preemptions(self) -> int: ...

    @property
    @abstractmethod
    def blocks(self) -> int:
        """KV blocks held."""

    @property
    @abstractmethod
    def running(self) -> bool:
        """True while admitted; False while waiting and after the end."""

    @property
    @abstractmethod
    def prediction(self) -> Prediction | None:
        """Predicted output length; None until a predictor has answered."""

    @property
    @abstractmethod
    def true_output_tokens(self) -> int:
        """The true length. Raises OracleNotDeclared unless the policy declares ``needs={"oracle"}``."""


class Served(NamedTuple):
    """Cumulative tokens of a tenant, newly executed and kept: no recompute, no wasted slots."""

    prompt: int
    output: int


class EngineView(ABC):
    """The engine's state, read-only and live; reading any count is O(1)."""

    __slots__ = ()

    @property
    @abstractmethod
    def now(self) -> Time: ...

    @property
    @abstractmethod
    def step(self) -> int:
        """Number of the batch that is being planned, from 1."""

    @property
    @abstractmethod
    def waiting(self) -> Iterator[RequestView]:
        """In arrival order; walking all of it is O(waiting)."""

    @property
    @abstractmethod
    def running(self) -> Iterator[RequestView]:
        """In order of admission, after those whose last token is in flight; walking all of it is O(running)."""

    @property
    @abstractmethod
    def num_waiting(self) -> int: ...

    @property
    @abstractmethod
    def num_running(self) -> int: ...

    @property
    @abstractmethod
    def free_blocks(self) -> int: ...

    @property
    @abstractmethod
    def num_blocks(self) -> int: ...

    @property
    @abstractmethod
    def free_slots(self) -> int: ...

    @property
    @abstractmethod
    def token_budget(self) -> int:
        """Tokens that may still be added to the batch being planned."""

    @property
    @abstractmethod
    def more_to_come(self) -> bool:
        """False once no further arrival is possible."""

    @abstractmethod
    def waiting_of(self, tenant: str) -> int: ...

    @abstractmethod
    def running_of(self, tenant: str) -> int: ...

    @abstractmethod
    def served(self, tenant: str) -> Served: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """What the engine was configured with; given to ``Policy.reset``."""

    batching: str  # continuous | static | dynamic
    overlap: bool
    admission: str  # optimistic | reserve | peak
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    num_blocks: int
    max_model_len: int


@dataclass(slots=True)
class Decision:
    """What a policy wants. Not fitting is never an error; naming an unknown request is."""

    admit: Iterable[RequestView] = ()
    """In order of preference. Pulled one at a time while a slot, blocks and the admission rule allow; `on_admit` comes
    between two pulls, so an iterator must bear that what it walks over changes. Yielding a list is always safe."""
    preempt: Iterable[RequestView] = ()
    reject: Iterable[tuple[RequestView, str]] = ()
    skip_blocked: bool = False
    """Go on past a request that does not fit; by default the head of the line blocks."""
    hold_until: Time | None = None
    """Admit nobody before then; arrivals, finishes and cancels still ask."""
    revisit_steps: int | None = None
    revisit_at: Time | None = None


class Policy(ABC):
    """Who goes next.

    State changes in ``reset`` and the ``on_*`` methods only: ``decide`` asked twice answers the same.
    """

    needs: frozenset[str] = frozenset()
    """Of {"prediction", "oracle"}."""
    preemptive: bool = False
    """True: asked even when no slot is free."""

    def reset(self, limits: Limits, rng: np.random.Generator) -> None:
        """Forget everything; called once before each run."""

    def on_arrival(self, request: RequestView, view: EngineView) -> None:
        """`request` has joined the queue."""

    def on_prediction(self, request: RequestView, view: EngineView) -> None:
        """`request.prediction` is new: after arrival, and again when the request outran it."""

    def on_admit(self, request: RequestView, view: EngineView) -> None:
        """`request` has left the queue for the batch, for the first time or after a preemption."""

    def on_preempt(self, request: RequestView, view: EngineView) -> None:
        """`request` has lost its blocks and is back in the queue."""

    def on_finish(self, request: RequestView, reason: str, view: EngineView) -> None:
        """`request` has ended: reason is completed, cancelled (while waiting too), rejected or failed."""

    @abstractmethod
    def decide(self, view: EngineView) -> Decision: ...

    def reservation(self, request: RequestView) -> int | None:
        """Output tokens to hold under admission=reserve|peak; None means `max_tokens`."""
        return None

    def victim(self, candidates: Sequence[RequestView], wanted: RequestView) -> RequestView | None:
        """Who gives way to `wanted`.

        Asked when a running request needs a block and none is left (`wanted.running`; None is not an answer
        then), and when the next admission does not fit (None: nobody). By default the newest when blocks run
        out, and nobody otherwise.
        """
        return max(candidates, key=lambda r: (r.arrival, r.number)) if wanted.running else None


class PriorityPolicy(Policy):
    """Smallest key first: most policies are this class and one method.

    With ``static = True`` the key is taken at arrival, at a prediction and at a preemption, and kept in a heap:
    O(log waiting) an admission. With ``static = False`` everyone waiting is keyed anew at each decision: O(waiting).
    A ``preemptive`` one yields a slot only to a strictly smaller key.
    """

    static: bool = True

    def __init__(self) -> None:
        self._heap: list[tuple[Key, int, RequestView]] = []
        self._keys: dict[int, Key] = {}  # number -> the key that counts, of everyone waiting
        self._edits = 0  # changes of the heap, since a walk may be under way
        self._view: EngineView | None = None

    @abstractmethod
    def key(self, request: RequestView, now: Time) -> Key:
        """Smallest goes first; ties by submission number. A NaN is ordered last."""

    def preemptible(self, request: RequestView) -> bool:
        return True

    def reset(self, limits: Limits, rng: np.random.Generator) -> None:
        self._heap.clear()
        self._keys.clear()

    def on_arrival(self, request: RequestView, view: EngineView) -> None:
        self._view = view
        self._file(request, view.now)

    def on_prediction(self, request: RequestView, view: EngineView) -> None:
        if not request.running:
            self._file(request, view.now)

    def on_preempt(self, request: RequestView, view: EngineView) -> None:
        self._file(request, view.now)

    def on_admit(self, request: RequestView, view: EngineView) -> None:
        self._remove(request)

    def on_finish(self, request: RequestView, reason: str, view: EngineView) -> None:
        self._remove(request)

    def decide(self, view: EngineView) -> Decision:
        return Decision(admit=self._in_order() if self.static else self._rekeyed(view))

    def victim(self, candidates: Sequence[RequestView], wanted: RequestView) -> RequestView | None:
        if not self.preemptive:
            return super().victim(candidates, wanted)
        now = wanted.arrival if self._view is None else self._view.now
        able = [(self._ordered(r, now), r.number, r) for r in candidates if self.preemptible(r)]
        if wanted.running:
            return max(able)[2] if able else super().victim(candidates, wanted)
        worse = [entry for entry in able if entry[0] > self._ordered(wanted, now)]
        return max(worse)[2] if worse else None

    def _ordered(self, request: RequestView, now: Time) -> Key:
        """The key with NaN as infinity: a NaN would break the order of the heap."""
        return tuple([part if part == part else math.inf for part in self.key(request, now)])

    def _file(self, request: RequestView, now: Time) -> None:
        if not self.static:
            return
        key = self._ordered(request, now)
        if self._keys.get(request.number) != key:
            self._keys[request.number] = key
            self._edits += 1
            heapq.heappush(self._heap, (key, request.number, request))

    def _remove(self, request: RequestView) -> None:
        self._keys.pop(request.number, None)
        self._edits += 1
        heap, keys = self._heap, self._keys
        while heap and keys.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)

    def _in_order(self) -> Iterator[RequestView]:
        """Everyone waiting, smallest key first; goes on rightly when the heap changes under way, as by an admission."""
        seen: set[int] = set()
        while (request := self._first_unseen(seen)) is not None:
            edits = self._edits
            seen.add(request.number)
            yield request
            if edits == self._edits:
                # nobody was admitted for it: the rest comes by a walk, not by starting over
                for request in self._walk():
                    if request.number not in seen:
                        seen.add(request.number)
                        yield request
                        if edits != self._edits:
                            break

    def _first_unseen(self, seen: set[int]) -> RequestView | None:
        return next((request for request in self._walk() if request.number not in seen), None)

    def _walk(self) -> Iterator[RequestView]:
        """The heap in order, without changing it: O(k log k) for the first k."""
        heap, keys = self._heap, self._keys
        frontier = [(heap[0], 0)] if heap else []
        while frontier:
            (key, number, request), at = heapq.heappop(frontier)
            for child in (2 * at + 1, 2 * at + 2):
                if child < len(heap):
                    heapq.heappush(frontier, (heap[child], child))
            if keys.get(number) == key:
                yield request

    def _rekeyed(self, view: EngineView) -> Iterator[RequestView]:
        heap = [(self._ordered(r, view.now), r.number, r) for r in view.waiting]
        heapq.heapify(heap)
        while heap:
            yield heapq.heappop(heap)[2]


class PolicyError(Exception):
    """A policy broke the contract; the message names the policy, the request and the rule."""


class InvalidDecision(PolicyError):
    """A decision named a request that it may not name."""


class OracleNotDeclared(PolicyError):
    """The true length was read without ``needs={"oracle"}``."""


class PolicyStalled(PolicyError):
    """Requests wait, nothing runs, nothing is to come, and the policy admits nobody."""
