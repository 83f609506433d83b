"""Traffic of real prompts, those of `predictors.corpus`; a model decides how long its answers are, or the corpus."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from backend.traffic import NONE, Traffic
from bench.errors import BadInput
from bench.traffic.checks import KEY, inherit
from bench.traffic.clients import Tokens, populate, rows_of
from bench.traffic.config import InstructedTenantConfig, InstructionsConfig, LengthConfig
from bench.traffic.lengths import lengths
from bench.traffic.seeds import stream
from bench.traffic.synthetic import arrivals

FEWEST_DRAWN = 1024


def instruct(config: InstructionsConfig, seed: int, root: Path) -> Traffic:
    """A checked config to traffic.

    Where a model decides, output lengths are NONE, and prompt lengths too: a tokenizer tells them.
    """
    parties = config.tenants or {"default": InstructedTenantConfig()}
    arrival, tenant = arrivals(config, parties, seed)
    prompt, output, limit = (np.full(len(arrival), NONE, np.int64) for _ in range(3))
    prompts = np.empty(len(arrival), object)
    for (name, party), rows in zip(parties.items(), rows_of(tenant, len(parties)), strict=True):
        key = f"{KEY}.tenants.{name}"
        limit[rows] = party.max_tokens or config.max_tokens or NONE
        corpus_seed = int(stream(seed, f"instructions/{name}").integers(2**63))
        drawn = _rows(key, party, len(rows), corpus_seed, config.noise)
        prompts[rows] = drawn["text"].to_numpy()
        if config.lengths == "corpus":
            output[rows], prompt[rows] = drawn["length"].to_numpy(), drawn["prompt_tokens"].to_numpy()
            context = inherit(party.context, config.context)
            if context != LengthConfig():
                rng = stream(seed, f"context/{name}")
                prompt[rows] += lengths(f"{key}.context", context, len(rows), rng, root)
    traffic = populate(Tokens(arrival, prompt, output, limit, tenant), parties, config, seed)
    return replace(traffic, prompts=prompts.tolist())


def _rows(key: str, party: InstructedTenantConfig, count: int, seed: int, noise: float | None) -> pd.DataFrame:
    """The first `count` of an endless list that are of the tenant's kind, as `predictors.pairs` has them."""
    from predictors.corpus import NOISE, make_corpus  # takes a second to import

    low, high = party.typical_min or 0, party.typical_max or math.inf
    rows = max(FEWEST_DRAWN, 2 * count)
    while True:
        corpus = make_corpus(rows, seed, NOISE if noise is None else noise, tenants=("plain",))
        found = corpus.rows[(low <= corpus.typical) & (corpus.typical <= high)]
        if len(found) >= count:
            return found[:count]
        if not len(found):
            raise BadInput(
                f"{key}: no prompt has a typical answer of {low} .. {high:g} tokens; widen typical_min, _max"
            )
        rows *= 2
