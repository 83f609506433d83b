"""What the table at the end of a sweep over predictors says."""

from __future__ import annotations

import pytest

from bench.learning.gains import recovers, show_gains
from bench.terminal import FinishedJob


@pytest.mark.parametrize(
    ("nothing", "some", "everything", "sign", "share"),
    [
        (100, 150, 200, 1, 0.5),
        (100, 200, 200, 1, 1.0),
        (100, 80, 200, 1, -0.2),  # it does harm
        (100, 70, 60, -1, 0.75),  # less is better
        (100, 130, 60, -1, -0.75),
        (100, 150, 104, 1, None),  # the oracle gains too little to share in
        (100, 90, 90, 1, None),  # it loses
        (100, None, 200, 1, None),
    ],
)
def test_a_share_is_of_what_the_oracle_gains_over_a_constant(nothing, some, everything, sign, share) -> None:
    assert recovers(nothing, some, everything, sign) == (None if share is None else pytest.approx(share))


def job(policy: str, predictor: str, seed: int, throughput: float, latency: float) -> FinishedJob:
    figures = {"output_throughput": throughput, "mean_e2el_ms": latency, "p99_e2el_ms": None, "p99_ttft_ms": 5.0}
    overrides = {"policy": policy, "predictor": predictor, "seed": str(seed), "experiment": "predictor_quality"}
    return FinishedJob(overrides, figures, {"predictor_ms": 0.25})


def test_the_table_has_each_policy_by_itself_and_means_over_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    known = {"constant": (100, 90), "learned": (130, 60), "oracle": (200, 30)}
    jobs = [job("ssjf", name, seed, t + seed, e) for name, (t, e) in known.items() for seed in (0, 2)]
    jobs += [job("fcfs", name, 0, 100, 90) for name in known]
    show_gains(jobs)
    said = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in said.splitlines() if line.startswith("│")]
    assert ["ssjf", "output tok/s", "101", "201", "30%"] in rows
    assert ["ssjf", "mean E2EL ms", "90", "30", "50%"] in rows
    assert ["ssjf", "p99 E2EL ms", "–", "–", "none"] in rows
    assert ["fcfs", "all", "", "", "none"] in rows
    assert "learned 0.250" in said


def test_without_a_constant_and_an_oracle_there_is_nothing_to_compare_with(capsys: pytest.CaptureFixture[str]) -> None:
    show_gains([job("ssjf", "learned", 0, 100, 90), job("ssjf", "oracle", 0, 100, 90)])
    assert "predictor=constant" in capsys.readouterr().out
