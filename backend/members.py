"""Who is in the batch, who is on the way out, and whose blocks and slots are not free yet.

Slots and blocks of whatever ends, is preempted or is cancelled are freed when the last batch that holds it commits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from backend.api import Chunk
from backend.blocks import BlockPool
from backend.request import Phase, Request
from backend.rings import GrowthRings
from policies.api import Time


@dataclass(slots=True)
class Flight:
    """A dispatched batch that is not committed."""

    number: int
    decodes: int
    chunks: list[tuple[Chunk, Request, int]]  # with the request and its spell when planned
    version: int
    dead: int = 0  # decodes whose token nobody gets
    wasted: int = 0  # of those, by an EOS that was not known


@dataclass(slots=True)
class Leaving:
    request: Request
    written: int  # KV tokens in its blocks at the end


@dataclass(slots=True)
class Late:
    """A preempted request keeps the token that the batch in flight makes for it."""

    request: Request
    first_of_spell: bool


@dataclass(slots=True)
class Members:
    pool: BlockPool
    decodes: dict[Request, None] = field(default_factory=dict)
    graduates: dict[Request, None] = field(default_factory=dict)  # last chunk dispatched, decode from the next batch on
    prefilling: dict[Request, None] = field(default_factory=dict)
    ending: dict[int, list[Request]] = field(default_factory=dict)  # by last batch
    num_ending: int = 0
    count: int = 0  # all of these
    late: dict[int, list[Late]] = field(default_factory=dict)
    leaving: dict[int, list[Leaving]] = field(default_factory=dict)  # by last batch
    leaving_blocks: int = 0
    leaving_slots: int = 0
    flights: deque[Flight] = field(default_factory=deque)
    kv_tokens: int = 0  # written slots of allocated blocks
    rings: GrowthRings = field(init=False)
    _context: int = 0  # sum over decodes of target - anchor: their context in batch b is this + b for each
    _ends: list[tuple[int, int, int, Request]] = field(default_factory=list)  # last batch, number, epoch, request

    def __post_init__(self) -> None:
        self.rings = GrowthRings(self.pool.block_size)

    def __iter__(self) -> Iterator[Request]:
        """Those that may get a token in the next batch, in order of admission."""
        yield from self.decodes
        yield from self.graduates
        yield from self.prefilling

    @property
    def slots(self) -> int:
        """Occupied ones: of members, and of those that have left but are in flight."""
        return self.count + self.leaving_slots

    @property
    def steady(self) -> bool:
        """True when all that happens is decoding: nobody on the way in or out."""
        return bool(self.decodes) and not (
            self.prefilling or self.graduates or self.num_ending or self.leaving or self.late
        )

    @property
    def coming_slots(self) -> int:
        """Slots that are free once everything in flight has committed."""
        return self.leaving_slots + self.num_ending

    def coming_blocks(self) -> int:
        """Blocks that are free once everything in flight has committed."""
        return self.leaving_blocks + sum(len(r.table) for requests in self.ending.values() for r in requests)

    def oldest(self) -> Request | None:
        return min(self, key=lambda r: (r.arrival, r.number), default=None)

    def context_tokens(self, batch: int) -> int:
        """KV tokens that the decodes attend to in batch number `batch`, their own included."""
        return self._context + batch * len(self.decodes)

    def admit(self, request: Request) -> None:
        self.prefilling[request] = None
        self.count += 1

    def promote(self) -> None:
        """Graduates decode from the next batch on."""
        for request in self.graduates:
            self.decodes[request] = None
            self.rings.file(request)
            self._context += request.target - request.anchor
            last = request.anchor + request.max_tokens - request.base - 1
            heappush(self._ends, (last, request.number, request.epoch, request))
        self.graduates.clear()

    def grow(self, batch: int) -> None:
        """A block for every decode whose blocks are full in batch number `batch`; they are there."""
        size = self.pool.block_size
        ring = self.rings.at(batch)
        if ring:
            self.pool.grow([r.table for r in ring if len(r.table) * size <= r.position(batch)])

    def next_end(self) -> int | None:
        """The batch with the next end by length."""
        heap = self._ends
        while heap and (heap[0][2] != heap[0][3].epoch or heap[0][3].phase != Phase.DECODE):
            heappop(heap)
        return heap[0][0] if heap else None

    def drop_ended(self, batch: int) -> int:
        """Take out those whose last token comes with `batch` or before; returns how many."""
        dropped = 0
        heap = self._ends
        while heap and heap[0][0] <= batch:
            last, _, epoch, request = heappop(heap)
            if epoch == request.epoch and request.phase == Phase.DECODE:
                self._stop_decoding(request)
                request.phase = Phase.ENDING
                request.last_batch = last
                self.ending.setdefault(last, []).append(request)
                self.num_ending += 1
                dropped += 1
        return dropped

    def take_out(self, request: Request, dispatched: int) -> int:
        """`request` is no member any more; returns the last batch that holds it (0: none did)."""
        self.count -= 1
        if request.phase == Phase.ENDING:
            self.ending[request.last_batch].remove(request)
            self.num_ending -= 1
            return request.last_batch
        if request.phase == Phase.PREFILL:
            del self.prefilling[request]
            return request.last_batch
        if request in self.graduates:
            del self.graduates[request]
        else:
            self._stop_decoding(request)
        return dispatched

    def mark_dead(self, request: Request, last: int, wasted: bool) -> None:
        """The tokens that flights up to `last` make for a decode go to nobody."""
        if not request.anchor:
            return
        for flight in self.flights:
            if request.anchor < flight.number <= last:
                flight.dead += 1
                flight.wasted += wasted

    def leave(self, request: Request, written: int, last: int, committed: int, now: Time) -> bool:
        """Free slot and blocks once `last` is committed; True if that is already so."""
        if last <= committed:
            self._free(request, written, now)
            return True
        self.leaving.setdefault(last, []).append(Leaving(request, written))
        self.leaving_blocks += len(request.table)
        self.leaving_slots += 1
        return False

    def freed_by(self, batch: int, now: Time) -> list[Request]:
        """Free what `batch` was the last to hold."""
        gone = self.leaving.pop(batch, [])
        for entry in gone:
            self.leaving_blocks -= len(entry.request.table)
            self.leaving_slots -= 1
            self._free(entry.request, entry.written, now)
        return [entry.request for entry in gone]

    def owned_tables(self) -> Iterator[list[int]]:
        for request in self:
            yield request.table
        for requests in self.ending.values():
            for request in requests:
                yield request.table
        for entries in self.leaving.values():
            for entry in entries:
                yield entry.request.table

    def _free(self, request: Request, written: int, now: Time) -> None:
        self.pool.give_back(request.table)
        self.kv_tokens -= written
        request.holds = False
        request.freed = now

    def _stop_decoding(self, request: Request) -> None:
        del self.decodes[request]
        self.rings.remove(request)
        self._context -= request.target - request.anchor
