"""A simulated GPU in real time: it sleeps for as long as the cost model says, and makes its tokens up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import sleep

from backend.api import Batch, Capabilities, Device, Member, Output, Ticket, Work
from backend.clock import Clock
from backend.costs import CostModel
from backend.simulated import SimulatedDevice
from policies.api import Time

VOCABULARY = 1 << 16


def made_up_token(prompt_ids: Sequence[int], index: int) -> int:
    """Output token number `index`, from 0: it counts on from the end of the prompt, so that a client can check it."""
    return (prompt_ids[-1] + 1 + index) % VOCABULARY


@dataclass(slots=True)
class Open:
    prompt_ids: Sequence[int]
    over: bool = False


class RealTimeDevice(Device):
    """What `SimulatedDevice` does in virtual time, one worker thread does here by the clock.

    For trying the serving driver and clients of it without a model. A request ends with its forced length, if it has
    one. Prompts may be texts: a token is a byte of UTF-8.
    """

    def __init__(
        self, cost: CostModel, *, num_blocks: int, block_size: int = 16, max_model_len: int, name: str = "realtime"
    ) -> None:
        self._simulated = SimulatedDevice(
            cost, num_blocks=num_blocks, block_size=block_size, max_model_len=max_model_len, name=name
        )
        self.capabilities = Capabilities(name, "simulated", block_size, num_blocks, max_model_len, VOCABULARY)
        self._clock: Callable[[], Time] = Clock()
        self._known: dict[str, Open] = {}
        self._outputs: dict[Ticket, Future[Output]] = {}
        self._worker = ThreadPoolExecutor(1, thread_name_prefix=f"batchyard-{name}")

    def set_clock(self, clock: Callable[[], Time]) -> None:
        self._clock = clock

    def encode(self, text: str) -> Sequence[int]:
        return list(text.encode())

    def open(self, work: Work) -> None:
        ids = work.prompt_ids
        if not ids or not 0 <= min(ids) <= max(ids) < VOCABULARY:
            raise ValueError(f"request {work.id}: needs prompt_ids, each in 0..{VOCABULARY - 1}")
        self._simulated.open(work)
        self._known[work.id] = Open(ids)

    def close(self, request_id: str) -> None:
        self._simulated.close(request_id)
        del self._known[request_id]

    def submit(self, batch: Batch, now: Time) -> Ticket:
        tokens = self._tokens(batch)
        output = self._simulated.wait(self._simulated.submit(batch, now))
        output.token_ids = tokens
        for request_id in output.stopped:
            self._known[request_id].over = True
        self._outputs[batch.number] = self._worker.submit(self._run, output)
        return batch.number

    def wait(self, ticket: Ticket) -> Output:
        return self._outputs.pop(ticket).result()

    def shutdown(self) -> None:
        self._worker.shutdown()

    def _tokens(self, batch: Batch) -> dict[str, int]:
        """Who gets which token, those that have stopped before left out."""
        fed: list[tuple[Member, int]] = [(member, member.position(batch.number)) for member in batch.decodes]
        fed += [(chunk.member, chunk.start + chunk.count - 1) for chunk in batch.chunks if chunk.last]
        tokens = {}
        for member, position in fed:
            known = self._known[member.id]
            if not known.over:
                tokens[member.id] = made_up_token(known.prompt_ids, position + 1 - len(known.prompt_ids))
        return tokens

    def _run(self, output: Output) -> Output:
        duration = output.ended - output.started
        output.started = self._clock()
        sleep(duration / 1e12)
        output.ended = self._clock()
        return output
