"""Traffic of real prompts, those of `predictors.corpus`: a model decides how long its answers are."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from backend.traffic import NONE, Traffic
from bench.errors import BadInput
from bench.traffic.checks import KEY
from bench.traffic.clients import Tokens, populate, rows_of
from bench.traffic.config import InstructedTenantConfig, InstructionsConfig
from bench.traffic.seeds import stream
from bench.traffic.synthetic import arrivals

FEWEST_DRAWN = 1024


def instruct(config: InstructionsConfig, seed: int) -> Traffic:
    """A checked config to traffic whose output lengths are NONE, and its prompt lengths too: a tokenizer tells them."""
    parties = config.tenants or {"default": InstructedTenantConfig()}
    arrival, tenant = arrivals(config, parties, seed)
    unknown = np.full(len(arrival), NONE, np.int64)
    limit, prompts = unknown.copy(), np.empty(len(arrival), object)
    for (name, party), rows in zip(parties.items(), rows_of(tenant, len(parties)), strict=True):
        limit[rows] = party.max_tokens or config.max_tokens or NONE
        corpus_seed = int(stream(seed, f"instructions/{name}").integers(2**63))
        prompts[rows] = _prompts(f"{KEY}.tenants.{name}", party, len(rows), corpus_seed)
    traffic = populate(Tokens(arrival, unknown, unknown, limit, tenant), parties, config, seed)
    return replace(traffic, prompts=prompts.tolist())


def _prompts(key: str, party: InstructedTenantConfig, count: int, seed: int) -> list[str]:
    """The first `count` of an endless list that are of the tenant's kind."""
    from predictors.corpus import make_corpus  # takes a second to import

    low, high = party.typical_min or 0, party.typical_max or math.inf
    rows = max(FEWEST_DRAWN, 2 * count)
    while True:
        corpus = make_corpus(rows, seed, tenants=("plain",))
        texts: list[str] = corpus.rows["text"][(low <= corpus.typical) & (corpus.typical <= high)].tolist()
        if len(texts) >= count:
            return texts[:count]
        if not texts:
            raise BadInput(
                f"{key}: no prompt has a typical answer of {low} .. {high:g} tokens; widen typical_min, _max"
            )
        rows *= 2
