from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import kendalltau

from predictors.api import PredictionInput
from predictors.noisy_oracle import NoisyOracle

N = 10_000
rng = np.random.default_rng(7)
LENGTHS = {
    "lognormal": np.clip(rng.lognormal(5.3, 1.2, N).round(), 1, None),
    "uniform": rng.integers(1, 513, N),
    "few": rng.choice([10, 20, 50, 400], N),
    "heavy": np.clip(rng.pareto(1.1, N) * 20, 1, 10**6).round(),
}
"""True lengths. At this number the standard deviation of tau_b is below 0.007."""


def inputs(lengths, made=0):
    return [PredictionInput(str(i), None, 10, "t", 0, 10**9, made, int(n)) for i, n in enumerate(lengths)]


def expected(predictor, lengths, made=0):
    return np.array([p.expected for p in predictor.predict(inputs(lengths, made))])


@pytest.mark.parametrize("error", [0.1, 0.5, 1.0])
def test_relative_error_is_the_spread_of_the_log_ratio(error):
    lengths = np.full(N, 10_000)
    ratio = np.log(expected(NoisyOracle(relative_error=error), lengths) / lengths)
    assert ratio.std() == pytest.approx(error, rel=0.02)
    assert ratio.mean() == pytest.approx(0, abs=0.03 * error)


def test_no_error_is_the_truth():
    lengths = LENGTHS["lognormal"]
    assert expected(NoisyOracle(relative_error=0), lengths) == pytest.approx(lengths)
    assert expected(NoisyOracle(kendall_tau=1), lengths) == pytest.approx(lengths)


@pytest.mark.parametrize("tau", [0.2, 0.52, 0.64, 0.9])
def test_kendall_tau_of_lognormal_lengths_without_calibration(tau):
    lengths = np.random.default_rng(3).lognormal(9, 0.8, N)
    predicted = expected(NoisyOracle(kendall_tau=tau, log_std=0.8, median_tokens=np.exp(9)), lengths)
    assert kendalltau(predicted, lengths).statistic == pytest.approx(tau, abs=0.02)


@pytest.mark.parametrize("tau", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("shape", LENGTHS)
def test_kendall_tau_of_any_lengths_with_calibration(shape, tau):
    lengths = LENGTHS[shape]
    predictor = NoisyOracle(kendall_tau=tau)
    predictor.calibrate(lengths)
    assert kendalltau(expected(predictor, lengths), lengths).statistic == pytest.approx(tau, abs=0.02)


def test_a_tau_that_ties_do_not_allow_is_refused():
    predictor = NoisyOracle(kendall_tau=0.9)
    with pytest.raises(ValueError, match=r"kendall_tau: 0\.9 cannot be reached; equal lengths leave at most 0\.7"):
        predictor.calibrate(np.repeat([10, 20], 500))
    with pytest.raises(ValueError, match="kendall_tau"):
        predictor.calibrate([100])


def test_a_ranked_prediction_spreads_less_than_the_truth_and_keeps_the_median():
    lengths = np.random.default_rng(3).lognormal(6, 1.0, N)
    predicted = np.log(expected(NoisyOracle(kendall_tau=0.5, log_std=1.0, median_tokens=np.exp(6)), lengths))
    assert predicted.std() == pytest.approx(np.sin(np.pi / 4), rel=0.03)
    assert predicted.mean() == pytest.approx(6, abs=0.03)


@pytest.mark.parametrize("error", [0.0, 0.01, 0.1, 0.5])
def test_bin_error_is_the_rate_of_neighbours_on_each_side(error):
    edges = [100, 200, 300, 400]
    predictor = NoisyOracle(bin_error=error, bin_edges=edges)
    for place, length in enumerate((50, 200, 201, 1000)):
        bins = expected(predictor, [length] * 10_000) // 100
        for neighbour in (place - 1, place + 1):
            rate = error if 0 <= neighbour <= 3 else 0.0
            assert (bins == neighbour).mean() == pytest.approx(rate, abs=4 * np.sqrt(error / 10_000) + 1e-9)
        assert set(bins) <= {place - 1, place, place + 1}


def test_a_bin_is_predicted_by_its_middle_and_its_edge():
    answers = NoisyOracle(bin_error=0, bin_edges=[100, 300]).predict(inputs([7, 100, 101, 900]))
    assert [(a.expected, a.upper) for a in answers] == [(50, 100), (50, 100), (200, 300), (200, 300)]


@pytest.mark.parametrize(("error", "edge"), [(0.04, 100), (0.06, 200)])
def test_the_upper_of_a_bin_is_the_next_edge_where_the_truth_lies_above_too_often(error, edge):
    answers = NoisyOracle(bin_error=error, bin_edges=[100, 200, 300]).predict(inputs([50] * 100))
    assert {a.upper for a in answers if a.expected == 50} == {edge}


@pytest.mark.parametrize("given", [{"relative_error": 0.7}, {"kendall_tau": 0.5}])
@pytest.mark.parametrize("quantile", [0.5, 0.9])
def test_upper_holds_the_truth_as_often_as_it_says(given, quantile):
    """For log-lengths spread far beyond the noise, or described by log_std: the truth given the prediction."""
    lengths = np.random.default_rng(5).lognormal(8, 1.0, N)
    predictor = NoisyOracle(**given, median_tokens=np.exp(8), quantile=quantile)
    upper = np.array([p.upper for p in predictor.predict(inputs(lengths))])
    assert (lengths <= upper).mean() == pytest.approx(quantile, abs=0.03)


def test_an_outrun_prediction_is_drawn_anew_for_what_remains():
    predictor = NoisyOracle(relative_error=0.5)
    lengths = np.full(N, 1000)
    again = expected(predictor, lengths, made=900)
    assert (again >= 901).all()
    rest = np.log((again - 900) / 100)
    assert rest.std() == pytest.approx(0.5, rel=0.03)
    first = np.log(expected(predictor, lengths) / 1000)
    assert abs(np.corrcoef(rest, first)[0, 1]) < 0.03


def test_what_remains_is_not_drawn_to_the_median_of_all_lengths():
    again = expected(NoisyOracle(kendall_tau=0.5, log_std=1.0, median_tokens=200), np.full(N, 10_000), made=5_000)
    rest = np.log((again - 5_000) / 5_000)
    assert rest.mean() == pytest.approx(0, abs=0.03)
    assert rest.std() == pytest.approx(np.cos(np.pi / 4), rel=0.03)


@pytest.mark.parametrize(
    "given", [{"relative_error": 2.0}, {"kendall_tau": 0.2}, {"bin_error": 0.5, "bin_edges": [1, 2, 400]}]
)
def test_answers_always_exceed_what_was_made(given):
    predictor = NoisyOracle(**given)
    for made in (0, 1, 399, 500):
        asked = inputs(LENGTHS["uniform"], made)
        assert all(p.expected >= made + 1 and p.upper >= p.expected for p in predictor.predict(asked))


def test_noise_depends_on_seed_and_request_alone():
    predictor = NoisyOracle(relative_error=0.5, seed=1)
    asked = inputs([100] * 50)
    together = predictor.predict(asked)
    assert [predictor.predict([i])[0] for i in reversed(asked)][::-1] == together
    assert NoisyOracle(relative_error=0.5, seed=1).predict(asked) == together
    assert len({p.expected for p in together}) == 50
    other = NoisyOracle(relative_error=0.5, seed=2).predict(asked)
    assert not {p.expected for p in together} & {p.expected for p in other}


def test_the_hash_seed_of_the_process_changes_nothing():
    code = (
        "from predictors.noisy_oracle import NoisyOracle\n"
        "from predictors.api import PredictionInput as I\n"
        "print(NoisyOracle(relative_error=.5).predict([I('request', None, 1, 't', 0, 9, 0, 100)]))"
    )
    run = [
        subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True)
        for seed in ("1", "2")
    ]
    assert run[0].stdout == run[1].stdout
    assert b"noisy_oracle" in run[0].stdout


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "exactly one of relative_error, bin_error and kendall_tau; 0"),
        ({"relative_error": 0.1, "kendall_tau": 0.5}, "exactly one .* 2"),
        ({"relative_error": -0.1}, "noisy_oracle.relative_error"),
        ({"relative_error": float("nan")}, "noisy_oracle.relative_error"),
        ({"bin_error": 0.6, "bin_edges": [1]}, "noisy_oracle.bin_error"),
        ({"bin_error": 0.1}, "noisy_oracle.bin_edges"),
        ({"bin_error": 0.1, "bin_edges": [2, 1]}, "noisy_oracle.bin_edges"),
        ({"kendall_tau": 0}, "noisy_oracle.kendall_tau"),
        ({"kendall_tau": 1.1}, "noisy_oracle.kendall_tau"),
        ({"kendall_tau": 0.5, "log_std": 0}, "noisy_oracle.log_std"),
        ({"kendall_tau": 0.5, "quantile": 1}, "noisy_oracle.quantile"),
    ],
)
def test_bad_parameters_are_named(given, named):
    with pytest.raises(ValueError, match=named):
        NoisyOracle(**given)
