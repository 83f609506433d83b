"""What a user can say about a workload: the fields under ``workload.`` on the command line.

Plain dataclasses, so that Hydra can take them as schemas. Times are seconds, rates requests a second. None: not given;
in a tenant that means as the workload's (a tenant that names a `kind` takes nothing from the workload beside it).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from omegaconf import MISSING


@dataclass
class ArrivalConfig:
    """The gaps between requests and how the rate changes; gaps have mean 1/rate whatever the kind."""

    kind: str | None = None  # poisson (if not given) | gamma | constant
    burstiness: float | None = None  # of gamma: its shape, as in `vllm bench serve`; spread/mean of the gaps 1/sqrt(it)
    start_s: float | None = None  # nobody comes before
    on_s: float | None = None  # they come for so long (at `rate`), then
    off_s: float | None = None  # stay away for so long, in turn
    ramp_to: float | None = None  # the rate goes in a line from `rate` to this one
    ramp_s: float | None = None  # within so long (off times not counted), then stays


@dataclass
class LengthConfig:
    """How many tokens: drawn, rounded to a whole number, then clipped to `min` .. `max`."""

    kind: str | None = None  # fixed | uniform | exponential | lognormal (if not given) | zipf | empirical
    mean: float | None = None  # of fixed, exponential, lognormal
    cv: float | None = None  # of lognormal: standard deviation / mean; 1 if not given
    median: float | None = None  # of lognormal, with sigma: in place of mean and cv
    sigma: float | None = None
    low: int | None = None  # of uniform, both ends included
    high: int | None = None
    exponent: float | None = None  # of zipf: P(k) ~ k^-exponent on min .. max
    values: list[int] | None = None  # of empirical: drawn from with replacement,
    path: str | None = None  # or from a text file with one number a line
    min: int | None = None  # 1 if not given
    max: int | None = None


@dataclass
class ClientConfig:
    """When a client leaves before its answer is complete."""

    cancel_probability: float | None = None  # 0 if not given
    cancel_after_s: float | None = None  # those who cancel leave so long after arrival,
    cancel_tokens: int | None = None  # or with so many tokens, whichever comes first
    patience_s: float | None = None  # everyone leaves if the first token takes longer
    spread: str | None = None  # fixed (if not given): the three are values | exponential: means (tokens: geometric)


@dataclass
class PartyConfig:
    """Who sends requests, whatever they send."""

    share: float = 1.0  # of the requests that are dealt out, relative to the other tenants
    weight: float = 1.0  # of service
    users: int = 1
    priority: int = 0  # smaller is more urgent
    slo: str = "default"  # name of an SLO class
    deadline_s: float | None = None  # after arrival
    client: ClientConfig = field(default_factory=ClientConfig)


@dataclass
class SenderConfig(PartyConfig):
    """A tenant that is drawn. With `rate`, `requests` or anything in `arrival` it has a process of its own."""

    rate: float | None = None  # None: its share of the workload's
    requests: int | None = None  # it sends so many and no more
    arrival: ArrivalConfig = field(default_factory=ArrivalConfig)
    max_tokens: int | None = None


@dataclass
class TenantConfig(SenderConfig):
    """A synthetic tenant."""

    prompt: LengthConfig = field(default_factory=LengthConfig)
    output: LengthConfig = field(default_factory=LengthConfig)


@dataclass
class InstructedTenantConfig(SenderConfig):
    """A tenant that sends instructions."""

    typical_min: int | None = None  # only prompts whose answers typically have so many tokens: of a guess, not of the
    typical_max: int | None = None  # model's own
    context: LengthConfig = field(default_factory=LengthConfig)


@dataclass
class DrawnConfig:
    """Traffic that is drawn. It ends with `requests` or `duration_s`, whichever comes first."""

    kind: str = MISSING
    rate: float | None = 20.0  # of all tenants without a rate of their own together; inf: all at once
    requests: int | None = 1000
    duration_s: float | None = None
    concurrency: int | None = None  # at most so many at a time, each sending its next when the last has ended
    arrival: ArrivalConfig = field(default_factory=ArrivalConfig)
    max_tokens: int | None = None  # the client's limit; None: no limit of its own
    client: ClientConfig = field(default_factory=ClientConfig)


@dataclass
class SyntheticConfig(DrawnConfig):
    """Lengths from distributions."""

    kind: str = "synthetic"
    prompt: LengthConfig = field(default_factory=lambda: LengthConfig(mean=512.0))
    output: LengthConfig = field(default_factory=lambda: LengthConfig(mean=256.0))
    tenants: dict[str, TenantConfig] = field(default_factory=dict)  # none: one called "default"


@dataclass
class InstructionsConfig(DrawnConfig):
    """Real prompts; the model decides how long it answers, up to `max_tokens`.

    Or `lengths` are drawn as those of the corpus that the prompts are from, so that no model is needed: around what is
    typical of each prompt, which can be learned, with `noise`, which cannot.
    """

    kind: str = "instructions"
    rate: float | None = 2.0
    requests: int | None = 60
    max_tokens: int | None = 64
    lengths: str = "model"  # model | corpus
    noise: float | None = None  # of corpus: of the log-length, times a t with 5 degrees of freedom; 0.52 if not given
    context: LengthConfig = field(default_factory=LengthConfig)  # of corpus: tokens beside the text; none if not given
    tenants: dict[str, InstructedTenantConfig] = field(default_factory=dict)  # none: one called "default"


WorkloadConfig: TypeAlias = "SyntheticConfig | InstructionsConfig | TraceConfig"


@dataclass
class TraceConfig:
    """Traffic from a file. A row's limit is the row's own or none; it never follows from its output length."""

    kind: str = "trace"
    format: str | None = None  # azure | burstgpt | mooncake | vtc | vidur | servegen | plain
    path: str | None = None  # relative to where the command was started
    strict: bool = True  # False: skip and count bad rows
    start_s: float | None = None  # keep start_s <= time < end_s, counted from the first row;
    end_s: float | None = None  # time 0 is then start_s
    fraction: float = 1.0  # keep each row with this probability
    limit: int | None = None  # keep the first so many of what is left
    rate_scale: float = 1.0  # 2: twice the rate; inf: all at once
    max_prompt_tokens: int | None = None  # besides prompt + output <= the model's limit
    max_output_tokens: int | None = None
    over_limit: str = "drop"  # drop | clip (prompt to its limit, then output to what is left) | keep
    assign: str = "trace"  # trace: the file's tenants (one, "default", if it names none) | shares: deal out by share
    concurrency: int | None = None
    client: ClientConfig = field(default_factory=ClientConfig)
    tenants: dict[str, PartyConfig] = field(default_factory=dict)  # what the file says of a row comes before this
