"""Real models under the engine, on a GPU.

The worker thread only launches: what a step is told is copied in, computed on and copied out on three streams, and
`wait` blocks until the ids of that step are on the host. The step behind it is launched before: the ids that it feeds
never leave the GPU (`Carry`). Decode batches run as CUDA graphs.

Matrix products are the vendor's, who sums in another order for another number of rows: in 16-bit types a token may
depend on the batch where two nearly tie. The device contract is kept in float32.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from backend.api import Batch, Output, Ticket
from backend.errors import BadConfig
from backend.torch_device.build_gpu import ATTENTIONS, blocks_for_gpu_memory, gpu_runner
from backend.torch_device.cuda_lanes import CudaLanes
from backend.torch_device.decode_steps import DecodeSteps, sizes_up_to
from backend.torch_device.kv_cache import KVCache
from backend.torch_device.lanes import Flight, InTurn, Lanes
from backend.torch_device.loading import Loaded, load
from backend.torch_device.model_device import Members, ModelDevice
from backend.torch_device.sampling import Draws, draws_of, sample
from backend.torch_device.staging import Landing, Staging
from backend.torch_device.step_inputs import Integers, StepInputs, step_inputs
from backend.torch_device.step_tensors import arrays_of, wrap
from backend.torch_device.where import cuda_missing
from policies.api import Time

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Carry:
    """Ids that a step feeds and the host does not know yet: the step before samples them."""

    rows: Integers  # of this step
    source: Integers  # of the ids that the step before samples


@dataclass(slots=True)
class Job:
    members: Members
    inputs: StepInputs
    carry: Carry
    draws: Draws
    fixed: bool
    """Runs as one of the decode steps of fixed size."""


@dataclass(slots=True)
class Launched:
    members: Members
    landing: torch.Tensor
    ids: torch.Tensor
    """Sampled, on the device. Kept until they are copied: the next step would get their memory."""
    flight: Flight | None = None


class CudaDevice(ModelDevice[Launched]):
    def __init__(
        self,
        model: str | Path | torch.nn.Module = "smollm2",
        *,
        dtype: str = "auto",
        num_blocks: int | None = None,
        block_size: int = 16,
        kv_memory: int | None = None,
        max_model_len: int | None = None,
        graph_seqs: int = 256,
        attentions: Sequence[str] = tuple(ATTENTIONS),
        chat: bool = False,
        name: str = "torch",
        on: str = "cuda",
    ) -> None:
        """`num_blocks`, or else as many as fit `kv_memory` bytes, or else four fifths of the GPU's free memory.

        `graph_seqs`: the largest decode batch that is captured as a CUDA graph; 0: none is. `attentions`: what may
        compute attention, in the order in which it is tried. `chat`: as for TorchDevice. `on="cpu"` runs the same steps
        on the processor, one thing after the other: for tests. Raises UnsupportedModel, and BadConfig where there is no
        GPU.
        """
        if on == "cuda" and (missing := cuda_missing()):
            raise BadConfig(f"device cuda: {missing}")
        super().__init__(chat)
        self._sampled: dict[str, int] = {}  # by request, of the batch submitted last: which of its sampled ids
        place = torch.device(on)

        def build() -> Lanes:
            lanes = InTurn(self._clock) if place.type == "cpu" else CudaLanes(self._clock)
            loaded = load(model, dtype, max_model_len, place)
            self._runner = gpu_runner(loaded, block_size, attentions)
            blocks = num_blocks or blocks_for_gpu_memory(loaded, block_size, kv_memory)
            cache = KVCache(loaded.cache, blocks, block_size, place)
            self._decodes = self._decode_steps(loaded, cache, sizes_up_to(graph_seqs), lanes)
            self._serve(loaded, cache, name, place.type)
            lanes.settle()
            return lanes

        self._lanes = self._build_on_worker(build)
        self._staging, self._landing = Staging(place), Landing(place)
        nothing = torch.empty(0, dtype=torch.long, device=place)
        self._before = Launched(Members(0), nothing, nothing)  # the step launched last
        graphs = f"graphs for up to {self._decodes.sizes[-1]} decodes" if self._decodes.sizes else "no graphs"
        self.description = f"{self._runner.description}, {graphs}"
        logger.info("%s: %s", name, self.description)

    def set_clock(self, clock: Callable[[], Time]) -> None:
        super().set_clock(clock)
        self._lanes.set_clock(clock)

    def submit(self, batch: Batch, now: Time) -> Ticket:
        members = self._read(batch)
        size = self._decodes.fit(members.pieces)
        members.pieces += [self._padding()] * ((size or 0) - len(members.pieces))
        inputs = step_inputs(members.pieces, self.capabilities.block_size)
        carry = self._feed(members, inputs)
        draws = draws_of([(t.sampling, t.seed, position - t.prompt) for t, position in members.wanted])
        job = Job(members, inputs, carry, draws, size is not None)
        self._sampled = {tokens.id: i for i, (tokens, _) in enumerate(members.wanted)}
        self._open[batch.number] = self._worker.submit(self._launch, job)
        return batch.number

    def _feed(self, members: Members, inputs: StepInputs) -> Carry:
        """Fill in the ids that the host knows; what it does not know yet, the step before is sampling.

        Another thread may learn of that step's ids meanwhile: either way the token is the same.
        """
        rows, source, row = [], [], 0
        for tokens, start, count in members.feeds:
            known = tokens.ids[start : start + count]
            inputs.ids[row : row + len(known)] = known
            row += count
            if len(known) < count:
                if len(known) < count - 1 or tokens.id not in self._sampled:
                    raise ValueError(f"request {tokens.id}: token {start + len(known)} was never made")
                rows.append(row - 1)
                source.append(self._sampled[tokens.id])
        return Carry(np.array(rows, dtype=np.int32), np.array(source, dtype=np.int32))

    def _launch(self, job: Job) -> Launched:
        number, wanted = job.members.number, len(job.members.wanted)
        carry, draws = job.carry, job.draws
        arrays: list[npt.NDArray[Any]] = [carry.rows, carry.source, draws.rows, draws.top_k, draws.numbers]
        parcel = self._staging.pack(number, [*arrays, *arrays_of(job.inputs, self._runner.attention.tile)])
        this = Launched(job.members, self._landing.of(number, wanted), self._before.ids)
        before, self._before = self._before, this

        def compute() -> None:
            rows, source, *drawn = parcel.parts[: len(arrays)]
            step = wrap(job.inputs, parcel.parts[len(arrays) :])
            if len(rows):
                step.ids.index_copy_(0, rows, before.ids.index_select(0, source))
            logits = self._decodes.run(step) if job.fixed else self._runner.forward(step, self._cache)
            this.ids = sample(logits[:wanted], draws, drawn)

        def copy_out() -> None:
            this.landing.copy_(this.ids, non_blocking=True)

        with torch.inference_mode():
            this.flight = self._lanes.launch(parcel.copy, compute, copy_out)
        return this

    def _output(self, ticket: Ticket, done: Launched) -> Output:
        assert done.flight is not None
        started, ended = done.flight.land()
        return self._take(done.members, done.landing.tolist(), started, ended)

    def _decode_steps(self, loaded: Loaded, cache: KVCache, sizes: list[int], lanes: Lanes) -> DecodeSteps:
        if lanes.captures and not self._runner.attention.replayable:
            sizes = []  # the host takes part in it
        longest = min(cache.num_blocks, -(-loaded.max_model_len // cache.block_size))
        with torch.inference_mode():
            return DecodeSteps(self._runner, cache, sizes, longest, loaded.vocabulary, lanes.record)

    def shutdown(self) -> None:
        super().shutdown()
        if "_runner" in self.__dict__:
            self._lanes.settle()
        for name in ("_runner", "_decodes", "_before", "_staging", "_landing"):
            self.__dict__.pop(name, None)
