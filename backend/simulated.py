"""A GPU in virtual time: it knows what a step costs and when each request will say EOS, and computes nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush

from backend.api import Batch, Capabilities, Chunk, Device, Member, Output, Ticket, Work
from backend.costs import CostModel
from backend.errors import BadConfig
from policies.api import Time

NEVER = 2**62


class SimulatedDevice(Device):
    def __init__(
        self, cost: CostModel, *, num_blocks: int, block_size: int = 16, max_model_len: int, name: str = "simulated"
    ) -> None:
        if num_blocks < 1 or block_size < 1:
            raise BadConfig(f"backend.num_blocks: {num_blocks} blocks of {block_size} tokens; at least one of one")
        self.cost = cost
        self.capabilities = Capabilities(name, "simulated", block_size, num_blocks, max_model_len)
        self._work: dict[str, Work] = {}
        self._stops: list[tuple[int, int, Member]] = []  # heap: batch in which a member says EOS
        self._due: dict[str, int] = {}  # the entry that counts, after preemptions
        self._filed = 0  # makes the order of the heap total
        self._open: deque[Output] = deque()
        self._free: Time = 0

    def open(self, work: Work) -> None:
        self._work[work.id] = work

    def close(self, request_id: str) -> None:
        del self._work[request_id]
        self._due.pop(request_id, None)

    def submit(self, batch: Batch, now: Time) -> Ticket:
        started = max(self._free, now)
        self._free = started + self.cost.time(batch)
        self._open.append(self._output(batch, started, self._free))
        return batch.number

    def wait(self, ticket: Ticket) -> Output:
        output = self._open.popleft()
        if output.number != ticket:
            raise ValueError(f"ticket {ticket} was waited for out of order; {output.number} is the oldest")
        return output

    def horizon(self) -> int:
        return self._stops[0][0] if self._stops else NEVER

    def durations(self, batch: Batch, count: int) -> Sequence[Time]:
        lines = self.cost.lines(batch)
        if len(lines) == 1:
            [(start, slope)] = lines
            return range(start, start + slope * count, slope) if slope else [start] * count
        return [max([start + slope * step for start, slope in lines]) for step in range(count)]

    def skip(self, batch: Batch, started: Time, ended: Time) -> Output:
        self._free = ended
        return self._output(batch, started, ended)

    def _output(self, batch: Batch, started: Time, ended: Time) -> Output:
        number = batch.number
        stopped: list[str] = []
        for chunk in batch.chunks:
            if chunk.last:
                self._foresee(chunk, number, stopped)
        while self._stops and self._stops[0][0] <= number:
            due, _, member = heappop(self._stops)
            if due == self._due.get(member.id) and member in batch.decodes:  # else it was preempted or cancelled
                stopped.append(member.id)
        return Output(number, stopped, started, ended)

    def _foresee(self, chunk: Chunk, number: int, stopped: list[str]) -> None:
        """The member's next token comes with batch `number`: file the batch of its last one."""
        work = self._work[chunk.member.id]
        if work.forced_output_tokens is not None:
            made = chunk.start + chunk.count - work.prompt_tokens
            left = work.forced_output_tokens - made
            if left <= 1:
                stopped.append(work.id)
            else:
                self._filed += 1
                self._due[work.id] = number + left - 1
                heappush(self._stops, (number + left - 1, self._filed, chunk.member))
