"""Lengths, clients, and the seeds behind everything drawn."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from backend.traffic import NONE, Traffic
from bench.errors import BadInput
from bench.traffic.build import build_traffic
from bench.traffic.config import ArrivalConfig, ClientConfig, LengthConfig, SyntheticConfig, TenantConfig
from bench.traffic.seeds import stream

SECOND = 10**12


def build(config: SyntheticConfig, seed: int = 0, root: Path = Path()) -> Traffic:
    return build_traffic(config, seed, 4096, root).traffic


def outputs(count: int = 100_000, root: Path = Path(), **settings: object) -> np.ndarray:
    config = SyntheticConfig(requests=count, output=LengthConfig(**settings))  # type: ignore[arg-type]
    return build(config, root=root).output_tokens


def test_fixed() -> None:
    assert set(outputs(100, kind="fixed", mean=7)) == {7}


def test_uniform_holds_both_ends() -> None:
    got = outputs(kind="uniform", low=1, high=20)
    assert np.bincount(got)[1:] / len(got) == pytest.approx([0.05] * 20, abs=0.005)


def test_exponential() -> None:
    got = outputs(kind="exponential", mean=1000)
    assert got.mean() == pytest.approx(1000, rel=0.01)
    assert got.std() == pytest.approx(1000, rel=0.02)


def test_lognormal_by_mean_and_cv() -> None:
    got = outputs(mean=500, cv=0.5)
    assert got.mean() == pytest.approx(500, rel=0.01)
    assert got.std() / got.mean() == pytest.approx(0.5, rel=0.02)


def test_lognormal_by_median_and_sigma() -> None:
    got = outputs(median=300, sigma=0.8)
    assert np.median(got) == pytest.approx(300, rel=0.02)
    assert np.log(got).std() == pytest.approx(0.8, rel=0.02)


def test_zipf() -> None:
    """P(1) : P(2) : P(4) = 1 : 1/2 : 1/4 at exponent 1, and nothing above the maximum."""
    counts = np.bincount(outputs(kind="zipf", exponent=1.0, max=100))
    assert len(counts) <= 101
    assert counts[[2, 4]] / counts[1] == pytest.approx([0.5, 0.25], abs=0.02)


def test_empirical_from_a_list_and_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "lengths.txt").write_text("10\n\n10\n30\n")
    for settings in ({"values": [10, 10, 30]}, {"path": "lengths.txt"}):
        got = outputs(root=tmp_path, kind="empirical", **settings)
        assert set(got) == {10, 30}
        assert np.mean(got == 10) == pytest.approx(2 / 3, abs=0.01)


def test_an_empirical_file_is_refused_by_line(tmp_path: Path) -> None:
    (tmp_path / "lengths.txt").write_text("10\n1.5\n")
    with pytest.raises(BadInput, match=r"lengths\.txt:2: '1\.5' is not a whole number"):
        outputs(root=tmp_path, kind="empirical", path="lengths.txt")
    with pytest.raises(BadInput, match=r"workload\.output\.path: cannot read .*nowhere\.txt"):
        outputs(root=tmp_path, kind="empirical", path="nowhere.txt")


def test_lengths_are_clipped_and_at_least_one() -> None:
    got = outputs(kind="exponential", mean=10, max=12)
    assert (got.min(), got.max()) == (1, 12)
    assert outputs(kind="exponential", mean=10, min=5).min() == 5


def test_a_tenants_lengths_inherit_field_by_field_unless_it_names_a_kind() -> None:
    tenants = {
        "a": TenantConfig(output=LengthConfig(mean=1000)),
        "b": TenantConfig(output=LengthConfig(kind="fixed", mean=9)),
    }
    got = build(SyntheticConfig(requests=50_000, output=LengthConfig(mean=100, cv=0.5), tenants=tenants))
    a, b = (got.output_tokens[got.tenant == t] for t in (0, 1))
    assert a.mean() == pytest.approx(1000, rel=0.02)
    assert a.std() / a.mean() == pytest.approx(0.5, rel=0.05)
    assert set(b) == {9}


def test_max_tokens_is_the_clients_or_none() -> None:
    assert set(build(SyntheticConfig(requests=10)).max_tokens) == {NONE}
    tenants = {"a": TenantConfig(max_tokens=5), "b": TenantConfig()}
    got = build(SyntheticConfig(requests=100, max_tokens=16, tenants=tenants))
    assert set(got.max_tokens[got.tenant == 0]) == {5}
    assert set(got.max_tokens[got.tenant == 1]) == {16}


def test_who_sends() -> None:
    tenants = {
        "a": TenantConfig(users=3, priority=-1, slo="fast", deadline_s=2.0, weight=2.0),
        "b": TenantConfig(users=2),
    }
    got = build(SyntheticConfig(requests=1000, tenants=tenants))
    a = got.tenant == 0
    assert set(got.user[a]) == {0, 1, 2}
    assert set(got.user[~a]) == {3, 4}
    assert set(got.priority[a]) == {-1}
    assert got.deadline[a].tolist() == (got.arrival[a] + 2 * SECOND).tolist()
    assert set(got.deadline[~a]) == {NONE}
    assert [got.slo_classes[i] for i in (got.slo[a][0], got.slo[~a][0])] == ["fast", "default"]
    assert [(tenant.name, tenant.weight) for tenant in got.tenants] == [("a", 2.0), ("b", 1.0)]


def test_who_leaves() -> None:
    client = ClientConfig(cancel_probability=0.2, cancel_after_s=1.5, cancel_tokens=3, patience_s=10)
    got = build(SyntheticConfig(requests=20_000, client=client))
    cancels = got.cancel_after != NONE
    assert cancels.mean() == pytest.approx(0.2, abs=0.01)
    assert set(got.cancel_after[cancels]) == {3 * SECOND // 2}
    assert (got.cancel_tokens == np.where(cancels, 3, NONE)).all()
    assert set(got.patience) == {10 * SECOND}


def test_who_leaves_at_random() -> None:
    client = ClientConfig(
        cancel_probability=1, cancel_after_s=1.5, cancel_tokens=20, patience_s=10, spread="exponential"
    )
    got = build(SyntheticConfig(requests=50_000, client=client))
    assert got.cancel_after.mean() / SECOND == pytest.approx(1.5, rel=0.02)
    assert got.cancel_tokens.mean() == pytest.approx(20, rel=0.02)
    assert got.cancel_tokens.min() == 1
    assert got.patience.std() / SECOND == pytest.approx(10, rel=0.02)


def test_nobody_leaves_by_default() -> None:
    got = build(SyntheticConfig(requests=10))
    assert {*got.cancel_after, *got.cancel_tokens, *got.patience} == {NONE}


def busy() -> SyntheticConfig:
    tenants = {"a": TenantConfig(share=2, users=5), "b": TenantConfig(rate=3.0), "c": TenantConfig(share=1)}
    client = ClientConfig(cancel_probability=0.3, cancel_after_s=1.0, spread="exponential")
    return SyntheticConfig(requests=2000, tenants=tenants, client=client)


def fingerprint(traffic: Traffic) -> str:
    columns = [getattr(traffic, name) for name in Traffic.__dataclass_fields__]
    return hashlib.sha256(b"".join(c.tobytes() for c in columns if isinstance(c, np.ndarray))).hexdigest()


def test_the_same_seed_in_two_processes() -> None:
    found = set()
    for hash_seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, __file__],
            env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(run.stdout.strip())
    assert found == {fingerprint(build(busy(), 7))}
    assert fingerprint(build(busy(), 8)) not in found


CHANGES = {  # a change: the columns that it may touch
    "output": (lambda c: replace(c, output=LengthConfig(kind="fixed", mean=3)), {"output_tokens"}),
    "prompt": (lambda c: replace(c, prompt=LengthConfig(kind="zipf", exponent=2, max=9)), {"prompt_tokens"}),
    "client": (lambda c: replace(c, client=ClientConfig(patience_s=1.0)), {"cancel_after", "patience"}),
    "arrival kind": (lambda c: replace(c, arrival=ArrivalConfig(kind="constant")), {"arrival", "deadline"}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_streams_are_independent(change: str) -> None:
    """With one tenant: what is drawn for one thing leaves all others as they were."""
    changed, touched = CHANGES[change]
    one = replace(busy(), tenants={"a": TenantConfig(users=5)})
    before, after = build(one), build(changed(one))
    columns = [name for name in Traffic.__dataclass_fields__ if isinstance(getattr(before, name), np.ndarray)]
    differ = {name for name in columns if (getattr(before, name) != getattr(after, name)).any()}
    assert differ
    assert differ <= touched


def test_what_is_drawn_side_by_side_is_uncorrelated() -> None:
    got = build(SyntheticConfig(requests=50_000, tenants={"a": TenantConfig(users=50_000)}))
    gaps = np.diff(got.arrival, prepend=0)
    columns = [np.argsort(np.argsort(column)) for column in (gaps, got.prompt_tokens, got.output_tokens, got.user)]
    assert np.corrcoef(columns) == pytest.approx(np.eye(4), abs=0.03)


def test_a_further_tenant_leaves_the_others_alone() -> None:
    tenants = {"a": TenantConfig(rate=2.0), "b": TenantConfig(rate=3.0)}
    config = SyntheticConfig(rate=None, requests=None, duration_s=100.0, tenants=tenants)
    few = build(config)
    many = build(replace(config, tenants={"new": TenantConfig(rate=9.0), **tenants}))
    for t in range(2):
        for column in ("arrival", "prompt_tokens", "output_tokens"):
            mine = getattr(few, column)[few.tenant == t].tolist()
            assert mine == getattr(many, column)[many.tenant == t + 1].tolist()


def test_streams_differ_by_name_and_seed() -> None:
    draws = [stream(seed, name).random() for seed in (0, 1) for name in ("arrivals", "lengths", "lengths/a")]
    assert len(set(draws)) == 6
    assert stream(0, "arrivals").random() == draws[0]


def test_a_stream_is_the_same_for_ever() -> None:
    """Pinned: a change would silently change every published run."""
    assert stream(42, "arrivals").integers(0, 10**9, 3).tolist() == [311355499, 39640169, 857427458]


if __name__ == "__main__":  # one of the two processes
    print(fingerprint(build(busy(), 7)))
