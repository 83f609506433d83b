"""``batchyard train``: fit a length predictor, score it on rows that it has not seen, keep it where runs find it."""

from __future__ import annotations

from collections.abc import Sequence

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from bench.hydra_app import command, the_job


def main(arguments: Sequence[str]) -> int:
    """Exit code 0, 1 if a training failed, 2 for bad input."""
    return command(arguments, task, "train")


def task(settings: DictConfig) -> float:
    """One training; the result is its rank correlation on the test rows, for a sweeper like Optuna."""
    with the_job(HydraConfig.get()) as job:
        from bench.learning.training import train  # scikit-learn and matplotlib take seconds, and --help needs neither

        trained = train(settings, job)
        print(trained.text())
        return trained.figures["learned"]["tau"]
