"""Real prompts: of their tenant's kind, of lengths that nobody knows yet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from backend.traffic import NONE, Traffic
from bench.traffic.build import build_traffic
from bench.traffic.config import InstructedTenantConfig, InstructionsConfig
from predictors.corpus import make_corpus


def build(seed: int = 0, **settings: object) -> Traffic:
    return build_traffic(InstructionsConfig(**settings), seed, 2048, Path()).traffic  # type: ignore[arg-type]


def prompts_of(traffic: Traffic, tenant: int) -> list[str]:
    assert traffic.prompts is not None
    return [traffic.prompts[i] for i in np.flatnonzero(traffic.tenant == tenant)]


def test_lengths_are_left_to_the_model_and_its_tokenizer() -> None:
    got = build(requests=30, max_tokens=12)
    assert set(got.output_tokens) == set(got.prompt_tokens) == {NONE}
    assert set(got.max_tokens) == {12}
    assert len(set(prompts_of(got, 0))) > 25


def test_a_tenant_gets_prompts_of_its_kind_and_its_limit() -> None:
    tenants = {
        "short": InstructedTenantConfig(typical_max=40, max_tokens=5),
        "long": InstructedTenantConfig(typical_min=200, typical_max=400),
    }
    got = build(requests=400, tenants=tenants)
    assert set(got.max_tokens[got.tenant == 0]) == {5}
    assert set(got.max_tokens[got.tenant == 1]) == {64}
    known = make_corpus(50_000, seed=1, tenants=("plain",))
    typical = dict(zip(known.rows["text"], known.typical, strict=True))
    for tenant, low, high in ((0, 0, 40), (1, 200, 400)):
        found = [typical[prompt] for prompt in prompts_of(got, tenant) if prompt in typical]
        assert len(found) > 100
        assert low <= min(found) <= max(found) <= high


def test_a_rare_kind_is_looked_for_until_there_are_enough() -> None:
    tenants = {"epic": InstructedTenantConfig(typical_min=1000)}
    assert len(prompts_of(build(requests=3000, tenants=tenants), 0)) == 3000


def test_they_come_by_a_poisson_process_of_the_rate() -> None:
    gaps = np.diff(build(requests=5000, rate=2.0).arrival) / 1e12
    assert gaps.mean() == pytest.approx(0.5, rel=0.05)
    assert gaps.std() == pytest.approx(0.5, rel=0.05)


def test_the_seed_decides_and_neither_another_tenant_nor_more_requests_move_a_prompt() -> None:
    assert build(3).prompts == build(3).prompts != build(4).prompts
    one, two = InstructedTenantConfig(rate=1.0), InstructedTenantConfig(rate=2.0)
    alone = build(requests=None, duration_s=50, rate=None, tenants={"a": one})
    both = build(requests=None, duration_s=900, rate=None, tenants={"a": one, "b": two})
    first = prompts_of(alone, 0)
    assert prompts_of(both, 0)[: len(first)] == first
    assert prompts_of(both, 1)[: len(first)] != first
