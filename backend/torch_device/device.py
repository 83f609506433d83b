"""Real models under the engine. On CPU one worker thread does all torch work, in the order of the batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import torch

from backend.api import Batch, Capabilities, Device, DeviceFailed, Output, Sampling, TextDecoder, Ticket, Work
from backend.torch_device.build import blocks_for_memory, cpu_runner
from backend.torch_device.detokenise import Detokeniser, StopText
from backend.torch_device.kv_cache import KVCache
from backend.torch_device.loading import Loaded, load
from backend.torch_device.runner import Runner
from backend.torch_device.sampling import sample
from backend.torch_device.step_inputs import Piece, StepInputs, step_inputs
from backend.torch_device.tokens import Tokens, tokens_of
from policies.api import Time


@dataclass(slots=True)
class Job:
    """A batch as it was when it was submitted."""

    number: int
    inputs: StepInputs
    feeds: list[tuple[Tokens, int, int]]  # in order of rows: tokens start .. start + count - 1 of the request
    wanted: list[tuple[Tokens, int]]  # in order of sampled rows: the position that the next token takes


class TorchDevice(Device):
    def __init__(
        self,
        model: str | Path | torch.nn.Module = "smollm2",
        *,
        dtype: str = "auto",
        num_blocks: int | None = None,
        block_size: int = 16,
        kv_memory: int | None = None,
        max_model_len: int | None = None,
        threads: int | None = None,
        fused: bool = True,
        compiled: bool = True,
        chat: bool = False,
        name: str = "torch",
    ) -> None:
        """`num_blocks`, or else as many as fit `kv_memory` bytes, or else a quarter of the free memory.

        `threads`: cores that the model may use, by default all that the process may. `fused` and `compiled` set to
        False leave out the fused decoder, and all C++. `chat`: a prompt in text is a user's message, put into the
        model's chat template. Raises UnsupportedModel.
        """
        self.threads = threads or len(os.sched_getaffinity(0))
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="batchyard-torch")
        self._requests: dict[str, Tokens] = {}
        self._open: dict[Ticket, Future[Output]] = {}
        began = perf_counter_ns()
        self._clock: Callable[[], Time] = lambda: (perf_counter_ns() - began) * 1000
        try:
            # OpenMP keeps a pool of threads for each thread that calls: everything runs on the one worker
            build = self._worker.submit(self._build, model, dtype, max_model_len, block_size, fused, compiled)
            loaded, self._runner = build.result()
        except BaseException:
            self._worker.shutdown()
            raise
        blocks = num_blocks or blocks_for_memory(loaded, block_size, kv_memory)
        self._cache = KVCache(loaded.cache, blocks, block_size)
        self._eos, self._chat = loaded.eos, chat
        self.tokenizer: Any | None = loaded.tokenizer
        self.description = self._runner.description
        self.capabilities = Capabilities(name, "cpu", block_size, blocks, loaded.max_model_len, loaded.vocabulary)

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

    def submit(self, batch: Batch, now: Time) -> Ticket:
        job = self._read(batch)
        self._open[job.number] = self._worker.submit(self._run, job)
        return job.number

    def wait(self, ticket: Ticket) -> Output:
        try:
            return self._open.pop(ticket).result()
        except Exception as error:
            raise DeviceFailed(f"{self.capabilities.name}: batch {ticket} failed: {error!r}") from error

    def shutdown(self) -> None:
        self._worker.shutdown(cancel_futures=True)
        self._requests.clear()
        self._open.clear()
        self.__dict__.pop("_runner", None)
        self.__dict__.pop("_cache", None)

    def _build(
        self, model: Any, dtype: str, max_model_len: int | None, block_size: int, fused: bool, compiled: bool
    ) -> tuple[Loaded, Runner]:
        torch.set_num_threads(self.threads)
        loaded = load(model, dtype, max_model_len)
        return loaded, cpu_runner(loaded, self.threads, block_size, fused, compiled)

    def _read(self, batch: Batch) -> Job:
        """Everything that the live batch says, before it changes."""
        pieces, feeds, wanted = [], [], []
        for member in batch.decodes:
            tokens, position = self._requests[member.id], member.position(batch.number)
            pieces.append(Piece(position, 1, member.table, True))
            feeds.append((tokens, position, 1))
            wanted.append((tokens, position + 1))
        for chunk in batch.chunks:
            tokens = self._requests[chunk.member.id]
            pieces.append(Piece(chunk.start, chunk.count, chunk.member.table, chunk.last))
            feeds.append((tokens, chunk.start, chunk.count))
            if chunk.last:
                wanted.append((tokens, chunk.start + chunk.count))
        size = self.capabilities.block_size
        for piece, (tokens, _, _) in zip(pieces, feeds, strict=True):
            if piece.start + piece.count > len(piece.table) * size:
                raise ValueError(f"request {tokens.id}: token {piece.start + piece.count - 1} has no block")
        pieces += [Piece(0, 1, (self._cache.num_blocks,), False)] * batch.padding
        return Job(batch.number, step_inputs(pieces, size), feeds, wanted)

    def _run(self, job: Job) -> Output:
        started = self._clock()
        row = 0
        for tokens, start, count in job.feeds:
            job.inputs.ids[row : row + count] = tokens.ids[start : start + count]
            row += count
        logits = self._runner.logits(job.inputs, self._cache)
        drawn = sample(logits, [(t.sampling, t.seed, position - t.prompt) for t, position in job.wanted])
        made, stopped = {}, []
        for (tokens, position), token in zip(job.wanted, drawn, strict=True):
            if not tokens.ended:
                made[tokens.id] = token
            if tokens.take(position, token, self._eos):
                stopped.append(tokens.id)
        return Output(job.number, stopped, started, self._clock(), made)
