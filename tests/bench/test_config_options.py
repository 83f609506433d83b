"""Every option that is shipped composes, and every experiment runs."""

from __future__ import annotations

import inspect
from pathlib import Path
from pydoc import locate
from typing import Any

import pytest
import yaml

from tests.bench.conftest import Batchyard
from tests.conftest import ROOT

CONF = ROOT / "conf"
ON_A_MODEL = {"demo_real"}  # tests/e2e/test_torch_run.py has them, on a small one
EXPERIMENTS = sorted({path.stem for path in (CONF / "experiment").glob("*.yaml")} - ON_A_MODEL)
TARGETS = sorted(
    path
    for group in ("policy", "predictor")
    for path in (CONF / group).glob("*.yaml")
    if path.stem not in ("none", "learned_rank", "learned_class")
)
MLFLOW_LABEL = 10  # characters that parallel coordinates show of a value

SMALL = {
    "demo": ["workload.duration_s=3", "seed=0"],
    "fairness": ["workload.duration_s=3"],
    "overlap": ["workload.requests=30"],
    "multi_bin_static": ["workload.requests=200"],
    "predictor_quality": ["workload.requests=40", "policy=ssjf", "predictor=constant,learned,oracle", "seed=0"],
}


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_runs(experiment: str, batchyard: Batchyard, tmp_path: Path) -> None:
    told = batchyard("-m", f"experiment={experiment}", *SMALL.get(experiment, []), "hydra.sweep.dir=sweep", small=False)
    assert told.code == 0, told.err
    jobs = list(tmp_path.glob("sweep/*/summary.json"))
    assert len(jobs) == told.out.count("\t#") > 1
    assert all(told.out.count(f"\t#{job} ") == 1 for job in range(len(jobs)))


@pytest.mark.parametrize("path", TARGETS, ids=lambda path: f"{path.parent.name}={path.stem}")
def test_options_name_parameters_that_exist_with_their_defaults(path: Path) -> None:
    """A parameter that is missing here could not be swept, and a default that differs would surprise."""
    option: dict[str, Any] = yaml.safe_load(path.read_text())
    target = option.pop("_target_")
    parameters = inspect.signature(locate(target)).parameters  # type: ignore[arg-type]
    assert list(option) == list(parameters)
    chosen = {"relative_error", "seed", "store"}  # one accuracy has to be given; the others are the run's
    chosen -= {"seed"} if path.stem == "learned" else set()
    for name, value in option.items():
        if name not in chosen:
            default = parameters[name].default
            assert value == (list(default) if isinstance(default, tuple) else default), name


@pytest.mark.parametrize(("option", "objective"), [("learned_rank", "rank"), ("learned_class", "class")])
def test_learned_predictors_differ_in_their_objective_alone(option: str, objective: str, batchyard: Batchyard) -> None:
    whole, other = (
        yaml.safe_load(batchyard("--cfg", "job", f"predictor={name}", small=False).out)["predictor"]
        for name in ("learned", option)
    )
    assert other == whole | {"objective": objective}


@pytest.mark.parametrize("group", ["policy", "predictor"])
def test_names_differ_within_what_the_comparison_page_shows(group: str) -> None:
    names = [path.stem[:MLFLOW_LABEL] for path in (CONF / group).glob("*.yaml")]
    assert len(set(names)) == len(names)


CHOICES = [
    f"{group}={path.stem}"
    for group in ("workload", "backend", "engine", "slo", "suite", "backend/cost")
    for path in sorted((CONF / group).glob("*.yaml"))
]


@pytest.mark.parametrize("choice", CHOICES)
def test_every_option_composes(choice: str, batchyard: Batchyard) -> None:
    assert batchyard("--cfg", "job", choice, small=False).code == 0


def test_the_defaults_are_those_of_the_readme(batchyard: Batchyard) -> None:
    """Three tenants by a Poisson process, a noisy oracle, overlap, optimistic admission, Llama-3.1-8B on an H100."""
    config = yaml.safe_load(batchyard("--cfg", "job", small=False).out)
    assert len(config["workload"]["tenants"]) == 3
    assert config["workload"]["rate"] > 0
    assert config["workload"]["arrival"]["kind"] is None  # Poisson
    assert config["predictor"]["_target_"] == "predictors.noisy_oracle.NoisyOracle"
    assert config["engine"]["overlap"] is True
    assert config["engine"]["admission"] == "optimistic"
    assert (config["backend"]["kind"], config["backend"]["model"], config["backend"]["gpu"]) == (
        "simulated", "Llama-3.1-8B", "H100",
    )  # fmt: skip
    assert config["seed"] == 0


def test_a_key_that_is_swept_is_not_called_n() -> None:
    """YAML 1.1 reads a bare ``n`` as false."""
    for path in CONF.rglob("*.yaml"):
        assert False not in (yaml.safe_load(path.read_text()) or {}), path
