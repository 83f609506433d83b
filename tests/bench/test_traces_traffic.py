"""From the rows of a trace to traffic: selection, limits, tenants, clients, and back to a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from backend.traffic import NONE, Traffic
from bench.errors import BadInput
from bench.traffic.build import Built, build_traffic
from bench.traffic.config import ClientConfig, PartyConfig, SyntheticConfig, TenantConfig, TraceConfig
from bench.traffic.save import save_traffic

SECOND = 10**12


def write(folder: Path, rows: str, header: str = "arrival_s,prompt_tokens,output_tokens") -> TraceConfig:
    (folder / "t.csv").write_text(f"{header}\n{rows}")
    return TraceConfig(format="plain", path="t.csv")


def build(config: TraceConfig, root: Path, seed: int = 0, max_model_len: int = 4096) -> Built:
    return build_traffic(config, seed, max_model_len, root)


@pytest.fixture
def hundred(tmp_path: Path) -> TraceConfig:
    """A request a second, prompts of 1 … 100 tokens, answers of 10."""
    return write(tmp_path, "".join(f"{5 + i},{i + 1},10\n" for i in range(100)))


def test_a_row_without_a_limit_has_none(tmp_path: Path) -> None:
    """Output 20 in the trace and a default of 16 elsewhere: 20 tokens. The length is never made a limit."""
    got = build(write(tmp_path, "0,5,20\n"), tmp_path).traffic
    assert (got.output_tokens.tolist(), got.max_tokens.tolist()) == ([20], [NONE])


def test_a_row_with_a_limit_keeps_it(tmp_path: Path) -> None:
    config = write(tmp_path, "0,5,20,16\n1,5,20,\n", "arrival_s,prompt_tokens,output_tokens,max_tokens")
    assert build(config, tmp_path).traffic.max_tokens.tolist() == [16, NONE]


def test_what_a_trace_does_not_say(hundred: TraceConfig, tmp_path: Path) -> None:
    built = build(hundred, tmp_path)
    got = built.traffic
    assert [tenant.name for tenant in got.tenants] == ["default"]
    assert {*got.user, *got.priority, *got.slo} == {0}
    assert {*got.deadline, *got.cancel_after, *got.cancel_tokens, *got.patience} == {NONE}
    assert (got.ids, got.prompts, got.concurrency) == (None, None, None)
    assert got.arrival[[0, -1]].tolist() == [0, 99 * SECOND]
    assert built.notes["rows"] == built.notes["requests"] == 100
    assert built.sha256 is not None
    assert len(built.sha256) == 64


def test_a_time_window_counts_from_the_first_row_and_starts_at_zero(hundred: TraceConfig, tmp_path: Path) -> None:
    built = build(replace(hundred, start_s=9.5, end_s=20.0), tmp_path)
    assert built.traffic.arrival[[0, -1]].tolist() == [SECOND // 2, 9 * SECOND + SECOND // 2]
    assert built.traffic.prompt_tokens.tolist() == list(range(11, 21))
    assert built.notes["outside_window"] == 90


@pytest.mark.parametrize(("scale", "last"), [(2.0, 99 * SECOND // 2), (0.5, 198 * SECOND), (float("inf"), 0)])
def test_rate_scaling(hundred: TraceConfig, tmp_path: Path, scale: float, last: int) -> None:
    assert build(replace(hundred, rate_scale=scale), tmp_path).traffic.arrival[-1] == last


def test_sampling_is_seeded(hundred: TraceConfig, tmp_path: Path) -> None:
    config = replace(hundred, fraction=0.3)
    built = build(config, tmp_path, seed=1)
    assert 15 <= len(built.traffic) <= 45
    assert built.notes["not_sampled"] == 100 - len(built.traffic)
    chosen = [build(config, tmp_path, seed=seed).traffic.prompt_tokens.tolist() for seed in (1, 1, 2)]
    assert chosen[0] == chosen[1] != chosen[2]


def test_a_limit_keeps_the_first(hundred: TraceConfig, tmp_path: Path) -> None:
    built = build(replace(hundred, limit=7), tmp_path)
    assert built.traffic.prompt_tokens.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert built.notes["past_limit"] == 93


LENGTHS = "0,4000,96\n1,4000,97\n2,4096,1\n3,5000,10\n4,5,6\n"  # a model of 4096: the middle three are over


def test_over_the_model_limit_dropped(tmp_path: Path) -> None:
    built = build(write(tmp_path, LENGTHS), tmp_path)
    assert built.traffic.prompt_tokens.tolist() == [4000, 5]
    assert built.notes["dropped"] == 3
    assert built.traffic.prompt_tokens.sum() + built.notes["dropped_prompt_tokens"] == 17_101
    assert built.traffic.output_tokens.sum() + built.notes["dropped_output_tokens"] == 210


def test_over_the_model_limit_clipped(tmp_path: Path) -> None:
    built = build(replace(write(tmp_path, LENGTHS), over_limit="clip"), tmp_path)
    assert built.traffic.prompt_tokens.tolist() == [4000, 4000, 4095, 4095, 5]
    assert built.traffic.output_tokens.tolist() == [96, 96, 1, 1, 6]
    assert built.notes["clipped"] == 3
    assert built.traffic.prompt_tokens.sum() + built.notes["clipped_prompt_tokens"] == 17_101
    assert built.traffic.output_tokens.sum() + built.notes["clipped_output_tokens"] == 210


def test_over_the_model_limit_kept(tmp_path: Path) -> None:
    got = build(replace(write(tmp_path, LENGTHS), over_limit="keep"), tmp_path).traffic
    assert got.prompt_tokens.tolist() == [4000, 4000, 4096, 5000, 5]


def test_limits_of_ones_own(hundred: TraceConfig, tmp_path: Path) -> None:
    clipped = build(replace(hundred, max_prompt_tokens=50, max_output_tokens=9, over_limit="clip"), tmp_path).traffic
    assert clipped.prompt_tokens.max() == 50
    assert set(clipped.output_tokens) == {9}
    assert len(build(replace(hundred, max_prompt_tokens=50), tmp_path).traffic) == 50


def test_texts_are_not_clipped(tmp_path: Path) -> None:
    config = write(tmp_path, "0,9,3,hello\n", "arrival_s,prompt_tokens,output_tokens,prompt")
    with pytest.raises(BadInput, match=r"workload\.over_limit: clip cannot shorten prompts"):
        build(replace(config, max_prompt_tokens=5, over_limit="clip"), tmp_path)


def test_every_row_is_accounted_for(hundred: TraceConfig, tmp_path: Path) -> None:
    with (tmp_path / "t.csv").open("a") as file:
        file.write("7,x,1\n8,1\n9,-1,1\n")
    config = replace(hundred, strict=False, start_s=3.0, end_s=90.0, fraction=0.7, max_prompt_tokens=80, limit=40)
    notes = build(config, tmp_path).notes
    left_out = ("skipped", "outside_window", "not_sampled", "dropped", "past_limit")
    assert notes["rows"] == 103
    assert all(int(notes[name]) > 0 for name in left_out)
    assert notes["rows"] == notes["requests"] + sum(int(notes[name]) for name in left_out)


def test_nothing_left(hundred: TraceConfig, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no rows left: .*outside_window 100"):
        build(replace(hundred, start_s=1000.0), tmp_path)


def test_tenants_of_the_file(tmp_path: Path) -> None:
    config = write(tmp_path, "0,1,1,b\n1,1,1,a\n2,1,1,b\n", "arrival_s,prompt_tokens,output_tokens,tenant")
    got = build(replace(config, tenants={"a": PartyConfig(weight=3.0, slo="fast")}), tmp_path).traffic
    assert [(tenant.name, tenant.weight) for tenant in got.tenants] == [("b", 1.0), ("a", 3.0)]
    assert got.tenant.tolist() == [0, 1, 0]
    assert [got.slo_classes[i] for i in got.slo] == ["default", "fast", "default"]


def test_a_tenant_that_the_file_lacks(hundred: TraceConfig, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"workload\.tenants\.a: the trace has no such tenant, but default"):
        build(replace(hundred, tenants={"a": PartyConfig()}), tmp_path)


def test_tenants_dealt_out_by_share(tmp_path: Path) -> None:
    config = write(tmp_path, "".join(f"{i},1,1\n" for i in range(20_000)))
    tenants = {"a": PartyConfig(share=3, users=2), "b": PartyConfig(share=1)}
    got = build(replace(config, assign="shares", tenants=tenants), tmp_path).traffic
    assert np.bincount(got.tenant) / 20_000 == pytest.approx([0.75, 0.25], abs=0.01)
    assert set(got.user[got.tenant == 0]) == {0, 1}


def test_clients_leave_as_configured_unless_the_row_says(tmp_path: Path) -> None:
    config = write(tmp_path, "0,1,1,2.5\n1,1,1,\n", "arrival_s,prompt_tokens,output_tokens,patience_s")
    got = build(replace(config, client=ClientConfig(patience_s=1.0)), tmp_path).traffic
    assert got.patience.tolist() == [5 * SECOND // 2, SECOND]


def test_users_of_the_file(tmp_path: Path) -> None:
    header = "arrival_s,prompt_tokens,output_tokens,tenant,user"
    got = build(write(tmp_path, "0,1,1,a,x\n1,1,1,b,x\n2,1,1,a,x\n3,1,1,a,\n", header), tmp_path).traffic
    assert got.user[0] == got.user[2]
    assert len(set(got.user)) == 3


def test_a_weight_is_one_number_a_tenant(tmp_path: Path) -> None:
    config = write(tmp_path, "0,1,1,a,2\n1,1,1,a,3\n", "arrival_s,prompt_tokens,output_tokens,tenant,weight")
    with pytest.raises(BadInput, match="weight: tenant a has several"):
        build(config, tmp_path)


def test_a_prompt_without_a_length_of_the_answer(tmp_path: Path) -> None:
    got = build(write(tmp_path, '0,3,"Say ""hi"""\n', "arrival_s,prompt_tokens,prompt"), tmp_path).traffic
    assert got.output_tokens.tolist() == [NONE]
    assert got.prompts == ['Say "hi"']


def everything() -> Traffic:
    tenants = {
        "a": TenantConfig(weight=1.1, users=3, priority=-2, slo="fast", deadline_s=0.3, max_tokens=50),
        "b": TenantConfig(rate=3.0, client=ClientConfig(0.5, 1.25, 7, 2.0, "exponential")),
    }
    traffic = build_traffic(SyntheticConfig(requests=500, tenants=tenants), 3, 4096, Path()).traffic
    texts = [f'prompt {i},\n"quoted" é' for i in range(500)]
    return replace(traffic, ids=[f"r{i}" for i in range(500)], prompts=texts)


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_saved_traffic_is_read_back_exactly(tmp_path: Path, name: str) -> None:
    traffic = everything()
    traffic = replace(traffic, arrival=traffic.arrival - traffic.arrival[0], deadline=np.where(
        traffic.deadline == NONE, NONE, traffic.deadline - traffic.arrival[0]
    ))  # fmt: skip
    save_traffic(traffic, tmp_path / name)
    again = build(TraceConfig(format="plain", path=name, over_limit="keep"), tmp_path, seed=99).traffic
    for column in ("arrival", "prompt_tokens", "output_tokens", "max_tokens", "priority", "deadline"):
        assert getattr(again, column).tolist() == getattr(traffic, column).tolist(), column
    for column in ("cancel_after", "cancel_tokens", "patience"):
        assert getattr(again, column).tolist() == getattr(traffic, column).tolist(), column
    assert again.ids == traffic.ids
    assert again.prompts == traffic.prompts
    names = [[t.tenants[i] for i in t.tenant] for t in (traffic, again)]
    assert names[0] == names[1]
    assert [traffic.slo_classes[i] for i in traffic.slo] == [again.slo_classes[i] for i in again.slo]
    assert len(set(zip(traffic.user, again.user, strict=True))) == len(set(traffic.user)) == len(set(again.user))


def test_saved_in_no_other_form(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"saved as \.csv or \.jsonl"):
        save_traffic(everything(), tmp_path / "t.parquet")
