"""The device contract: what executes a batch.

The engine plans batches of counts and block numbers; a device owns tokens, weights and KV memory. Entry points in
group ``batchyard.devices``; ``batchyard check-device NAME`` runs the contract's tests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from policies.api import Time


class Member(Protocol):
    """A request as the device sees it."""

    @property
    def id(self) -> str: ...

    @property
    def table(self) -> Sequence[int]:
        """Block numbers in order: KV of token p lies in ``table[p // block_size]``."""

    def position(self, batch: int) -> int:
        """Index of the one token that a decode feeds in batch number `batch`."""


@dataclass(slots=True)
class Chunk:
    """A piece of prefill: tokens ``start .. start + count - 1`` of prompt and output so far."""

    member: Member
    start: int
    count: int
    last: bool
    """True: the next token is sampled from the last position."""


@dataclass(slots=True)
class Batch:
    """One step. Live: a device reads what it needs before `submit` returns."""

    number: int
    """From 1, without gaps."""
    decodes: Collection[Member]
    """One token each. Its input is the token that the previous batch sampled, on the device already under overlap."""
    chunks: Sequence[Chunk]
    padding: int
    """Slots of ended members of a static batch: one token of work each, for nobody."""
    context_tokens: int
    """Sum over members of the KV tokens that they attend to, those of this step included."""

    @property
    def tokens(self) -> int:
        tokens = len(self.decodes) + self.padding
        for chunk in self.chunks:
            tokens += chunk.count
        return tokens


@dataclass(frozen=True, slots=True)
class Sampling:
    temperature: float = 0.0  # 0: greedy
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for a single string of `stop`, whose letters would each be one."""
        if isinstance(self.stop, str) or not all(isinstance(text, str) for text in self.stop):
            raise ValueError(f"sampling.stop: {self.stop!r} is no tuple of strings")


@dataclass(slots=True)
class Work:
    """What the device is told of a request before it appears in a batch."""

    id: str
    prompt_tokens: int
    prompt_ids: Sequence[int] | None = None  # None on a simulated device
    forced_output_tokens: int | None = None
    """Say EOS with exactly this output token (replay of a trace); the engine is not told."""
    sampling: Sampling = field(default_factory=Sampling)


@dataclass(slots=True)
class Output:
    """What came of one batch."""

    number: int
    stopped: Sequence[str]
    """Ids of the members whose token of this batch was their last by EOS or stop string."""
    started: Time
    ended: Time
    token_ids: Mapping[str, int] | None = None
    """The token of every member that got one, wasted slots left out; None on a device that makes none."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    name: str
    kind: str  # simulated | cpu | cuda
    block_size: int
    num_blocks: int
    max_model_len: int  # of the model, whatever the pool holds
    vocabulary: int = 0  # token ids are 0 .. vocabulary - 1; 0: it takes none


Ticket = int


class TextDecoder(Protocol):
    """The text of one request, from its tokens one at a time."""

    def push(self, token: int) -> str:
        """The text that is now sure: never half a character, nor what may begin a stop string."""

    def flush(self) -> str:
        """What was held back, after the last token."""


class Device(ABC):
    """Executes batches in the order of their numbers.

    At most two tickets are open (one without overlap). `submit` returns at once; `wait` blocks until the batch is done.
    In real time `wait` is called in a thread of its own, so that the other methods may be called while it blocks.
    """

    capabilities: Capabilities

    @abstractmethod
    def open(self, work: Work) -> None:
        """Learn of a request. No KV is written before it appears in a batch.

        Raises ValueError, naming the request, for one that cannot be run; the others go on.
        """

    @abstractmethod
    def close(self, request_id: str) -> None:
        """Forget a request; no submitted batch holds it any more."""

    @abstractmethod
    def submit(self, batch: Batch, now: Time) -> Ticket: ...

    @abstractmethod
    def wait(self, ticket: Ticket) -> Output: ...

    def set_clock(self, clock: Callable[[], Time]) -> None:
        """In real time: tell `Output.started` and `ended` by the driver's clock, which any thread may read."""

    def encode(self, text: str) -> Sequence[int]:
        """Token ids of a prompt. Raises ValueError on a device without a tokenizer."""
        raise ValueError(f"{self.capabilities.name} has no tokenizer: give the prompt as token ids")

    def decoder(self, sampling: Sampling) -> TextDecoder | None:
        """For the text of one request; None on a device without a tokenizer."""
        return None

    def horizon(self) -> int:
        """Number of the first batch, of those not submitted yet, that may stop somebody; 0 where nobody can know.

        A lower bound: it lets a simulation jump over quiet steps.
        """
        return 0

    def durations(self, batch: Batch, count: int) -> Sequence[Time]:
        """Device time of `batch` and of the `count` - 1 like it that follow; asked only within the horizon."""
        raise NotImplementedError(f"{type(self).__name__} does not know its step times ahead")

    def skip(self, batch: Batch, started: Time, ended: Time) -> Output:
        """A driver has jumped over quiet steps: `batch` is the last of them, and ran from `started` to `ended`."""
        raise NotImplementedError(f"{type(self).__name__} cannot be jumped ahead")

    def shutdown(self) -> None:
        """Release memory and threads; idempotent."""


class DeviceFailed(Exception):
    """The device cannot go on; every open request fails with this cause."""
