"""Real models under the engine, on CPU: a worker thread runs them while the host plans."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from backend.api import Batch, Output, Ticket
from backend.torch_device.build import blocks_for_memory, cpu_runner
from backend.torch_device.kv_cache import KVCache
from backend.torch_device.loading import Loaded, load
from backend.torch_device.model_device import Members, ModelDevice
from backend.torch_device.runner import Runner
from backend.torch_device.sampling import draws_of, sample
from backend.torch_device.step_inputs import StepInputs, step_inputs
from policies.api import Time


class TorchDevice(ModelDevice[Output]):
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
        super().__init__(chat)
        self.threads = threads or len(os.sched_getaffinity(0))

        def build() -> tuple[Loaded, Runner, KVCache]:
            # OpenMP keeps a pool of threads for each thread that calls: everything runs on the one worker
            torch.set_num_threads(self.threads)
            loaded = load(model, dtype, max_model_len)
            runner = cpu_runner(loaded, self.threads, block_size, fused, compiled)
            blocks = num_blocks or blocks_for_memory(loaded, block_size, kv_memory)
            return loaded, runner, KVCache(loaded.cache, blocks, block_size)

        loaded, self._runner, cache = self._build_on_worker(build)
        self._serve(loaded, cache, name, "cpu")
        self.description = self._runner.description

    def submit(self, batch: Batch, now: Time) -> Ticket:
        members = self._read(batch)
        inputs = step_inputs(members.pieces, self.capabilities.block_size)
        self._open[batch.number] = self._worker.submit(self._run, members, inputs)
        return batch.number

    def _run(self, members: Members, inputs: StepInputs) -> Output:
        """Tokens are taken here, so that those of a batch are there when the next one runs."""
        started = self._clock()
        row = 0
        for tokens, start, count in members.feeds:
            inputs.ids[row : row + count] = tokens.ids[start : start + count]
            row += count
        logits = self._runner.logits(inputs, self._cache)
        draws = draws_of([(t.sampling, t.seed, position - t.prompt) for t, position in members.wanted])
        return self._take(members, sample(logits, draws).tolist(), started, self._clock())

    def _output(self, ticket: Ticket, done: Output) -> Output:
        return done

    def shutdown(self) -> None:
        super().shutdown()
        self.__dict__.pop("_runner", None)
