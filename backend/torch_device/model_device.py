"""What all devices that run a model through torch have in common: requests, their text, and one worker thread."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any, Generic, TypeVar

from backend.api import Batch, Capabilities, Device, DeviceFailed, Output, Sampling, TextDecoder, Ticket, Work
from backend.torch_device.detokenise import Detokeniser, StopText
from backend.torch_device.kv_cache import KVCache
from backend.torch_device.loading import Loaded
from backend.torch_device.step_inputs import Piece
from backend.torch_device.tokens import Tokens, tokens_of
from policies.api import Time

Built = TypeVar("Built")
Done = TypeVar("Done")


@dataclass(slots=True)
class Members:
    """A batch as it was when it was submitted."""

    number: int
    pieces: list[Piece] = field(default_factory=list)
    feeds: list[tuple[Tokens, int, int]] = field(default_factory=list)
    """In order of rows: tokens start .. start + count - 1 of the request."""
    wanted: list[tuple[Tokens, int]] = field(default_factory=list)
    """In order of sampled rows: the position that the next token takes."""

    def add(self, tokens: Tokens, start: int, count: int, table: Sequence[int], last: bool) -> None:
        self.pieces.append(Piece(start, count, table, last))
        self.feeds.append((tokens, start, count))
        if last:
            self.wanted.append((tokens, start + count))


class ModelDevice(Device, Generic[Done]):
    """A worker thread does all torch work, in the order of the batches. `Done` is what it has of each in the end."""

    def __init__(self, chat: bool) -> None:
        self.tokenizer: Any | None = None
        self._chat = chat
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="batchyard-torch")
        self._requests: dict[str, Tokens] = {}
        self._open: dict[Ticket, Future[Done]] = {}
        began = perf_counter_ns()
        self._clock: Callable[[], Time] = lambda: (perf_counter_ns() - began) * 1000

    def _build_on_worker(self, build: Callable[[], Built]) -> Built:
        """Whatever it raises, the worker does not outlive it."""
        try:
            return self._worker.submit(build).result()
        except BaseException:
            self._worker.shutdown()
            raise

    def _serve(self, loaded: Loaded, cache: KVCache, name: str, kind: str) -> None:
        """From now on, with this model and its memory."""
        self._cache, self._eos, self.tokenizer = cache, loaded.eos, loaded.tokenizer
        self.capabilities = Capabilities(
            name, kind, cache.block_size, cache.num_blocks, loaded.max_model_len, loaded.vocabulary
        )

    def set_clock(self, clock: Callable[[], Time]) -> None:
        self._clock = clock

    def encode(self, text: str) -> Sequence[int]:
        if self.tokenizer is None:
            return super().encode(text)
        if self._chat:
            message = [{"role": "user", "content": text}]
            text = self.tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=not self._chat)
        return ids

    def decoder(self, sampling: Sampling) -> TextDecoder | None:
        return None if self.tokenizer is None else StopText(Detokeniser(self.tokenizer), sampling.stop)

    def open(self, work: Work) -> None:
        can = self.capabilities
        self._requests[work.id] = tokens_of(work, can.vocabulary, can.max_model_len, self.tokenizer)

    def close(self, request_id: str) -> None:
        del self._requests[request_id]

    def wait(self, ticket: Ticket) -> Output:
        try:
            return self._output(ticket, self._open.pop(ticket).result())
        except Exception as error:
            raise DeviceFailed(f"{self.capabilities.name}: batch {ticket} failed: {error!r}") from error

    @abstractmethod
    def _output(self, ticket: Ticket, done: Done) -> Output:
        """May block, in the thread that waits."""

    def shutdown(self) -> None:
        self._worker.shutdown(cancel_futures=True)
        self._requests.clear()
        self._open.clear()
        self.__dict__.pop("_cache", None)

    def _read(self, batch: Batch) -> Members:
        """Everything that the live batch says, before it changes."""
        members = Members(batch.number)
        for member in batch.decodes:
            members.add(self._requests[member.id], member.position(batch.number), 1, member.table, True)
        for chunk in batch.chunks:
            members.add(self._requests[chunk.member.id], chunk.start, chunk.count, chunk.member.table, chunk.last)
        size = self.capabilities.block_size
        for piece, (tokens, _, _) in zip(members.pieces, members.feeds, strict=True):
            if piece.start + piece.count > len(piece.table) * size:
                raise ValueError(f"request {tokens.id}: token {piece.start + piece.count - 1} has no block")
        members.pieces += [self._padding()] * batch.padding
        return members

    def _padding(self) -> Piece:
        """A row of work for nobody, in the scratch block."""
        return Piece(0, 1, (self._cache.num_blocks,), False)

    def _take(self, members: Members, drawn: Sequence[int], started: Time, ended: Time) -> Output:
        """`drawn`: a token for each of `members.wanted`."""
        made, stopped = {}, []
        for (tokens, position), token in zip(members.wanted, drawn, strict=True):
            if not tokens.ended:
                made[tokens.id] = token
            if tokens.take(position, token, self._eos):
                stopped.append(tokens.id)
        return Output(members.number, stopped, started, ended, made)
