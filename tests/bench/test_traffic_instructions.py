"""Real prompts: of their tenant's kind, of lengths that nobody knows yet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from backend.traffic import NONE, Traffic
from bench.errors import BadInput
from bench.traffic.build import build_traffic
from bench.traffic.config import InstructedTenantConfig, InstructionsConfig, LengthConfig
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


def test_the_corpus_knows_lengths_too_with_the_noise_that_was_asked_for() -> None:
    known = make_corpus(100_000, seed=1, tenants=("plain",))
    typical = dict(zip(known.rows["text"], known.typical, strict=True))

    def spread(noise: float | None) -> float:
        got = build(requests=3000, max_tokens=None, lengths="corpus", noise=noise)
        assert (got.prompt_tokens > 0).all()
        assert got.prompts is not None
        logs = [
            np.log(length / typical[text])
            for text, length in zip(got.prompts, got.output_tokens, strict=True)
            if typical.get(text, 0) > 30  # where rounding does not matter
        ]
        return float(np.std(logs))

    assert spread(0.0) < 0.02
    assert spread(None) == pytest.approx(0.52 * np.sqrt(5 / 3), rel=0.1)  # of a t with 5 degrees of freedom
    assert spread(1.0) > 1.7 * spread(None)


def test_context_adds_tokens_and_no_text() -> None:
    with_context = InstructedTenantConfig(context=LengthConfig(kind="fixed", mean=500))
    bare, added = (
        build(requests=50, lengths="corpus", tenants={"a": tenant})
        for tenant in (InstructedTenantConfig(), with_context)
    )
    assert (added.prompt_tokens - bare.prompt_tokens == 500).all()
    assert added.prompts == bare.prompts
    assert (added.output_tokens == bare.output_tokens).all()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"lengths": "guessed"}, "workload.lengths: 'guessed'"),
        ({"noise": 0.5}, "workload.noise: a model reads the text"),
        ({"lengths": "corpus", "noise": -1.0}, "workload.noise: -1"),
        ({"context": LengthConfig(mean=5.0)}, "workload.context: a model reads the text"),
        ({"lengths": "corpus", "context": LengthConfig(kind="zipf")}, "workload.context.exponent: missing"),
    ],
)
def test_lengths_that_make_no_sense_are_refused(settings: dict[str, object], named: str) -> None:
    with pytest.raises(BadInput, match=named):
        build(**settings)
