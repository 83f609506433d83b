"""The truth with noise of a chosen size: how good would a predictor have to be?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b

from predictors.api import Prediction, PredictionInput, Predictor
from predictors.noise import BinNoise, LogNoise, Noise, fit_tau, lognormal_tau


class NoisyOracle(Predictor):
    """The true length, blurred; give exactly one of three accuracies.

    relative_error: the standard deviation of log(expected / true), which is normal: 0.1 is about 10%.
    bin_error: the chance of being one bin too low, and of being one too high; `expected` is the middle of the bin.
        Bins end at `bin_edges`, in tokens, the last included.
    kendall_tau: the tau_b between expected and true lengths, in expectation. Exact for lognormal lengths with a
        standard deviation `log_std` of the log, and after `calibrate` for any.

    `upper` is the `quantile` of the truth given `expected`. The noise depends on the seed, the request's id and its
    tokens so far alone. Of a request that outran its prediction, the rest is blurred anew.
    """

    needs = frozenset({"oracle"})

    def __init__(
        self,
        relative_error: float | None = None,
        bin_error: float | None = None,
        kendall_tau: float | None = None,
        bin_edges: Sequence[float] = (),
        log_std: float = 1.0,
        median_tokens: float = 200.0,
        quantile: float = 0.95,
        seed: int = 0,
    ) -> None:
        if not 0.5 <= quantile < 1:
            raise ValueError(f"noisy_oracle.quantile: {quantile} is not within 0.5 .. 1")
        self.kendall_tau = kendall_tau
        self.quantile = quantile
        self._hash = blake2b(f"{seed}/".encode(), digest_size=8)
        given = [value is not None for value in (relative_error, bin_error, kendall_tau)]
        if sum(given) != 1:
            raise ValueError(
                f"noisy_oracle: give exactly one of relative_error, bin_error and kendall_tau; {sum(given)} are given"
            )
        if relative_error is not None:
            self._blur_by(_relative(relative_error))
        elif bin_error is not None:
            self._blur_by(_binned(bin_error, bin_edges))
        elif kendall_tau is not None:
            self._blur_by(_ranked(kendall_tau, log_std, median_tokens))

    def calibrate(self, lengths: Sequence[int]) -> None:
        """Set the noise by the true lengths of a workload, in tokens; a no-op unless `kendall_tau` is given.

        Raises ValueError where equal lengths leave no room for so high a tau.
        """
        if self.kendall_tau is not None and self.kendall_tau < 1:
            self._blur_by(fit_tau(self.kendall_tau, lengths))

    def _blur_by(self, noise: Noise) -> None:
        self._first = noise, noise.upper(self.quantile)
        self._again = noise.rest, noise.rest.upper(self.quantile)

    def predict(self, inputs: Sequence[PredictionInput]) -> list[Prediction]:
        return [self._predict(i) for i in inputs]

    def _predict(self, request: PredictionInput) -> Prediction:
        made = request.output_tokens
        noise, bound = self._again if made else self._first
        rest = max(1.0, noise.blur(max(1, request.true_output_tokens - made), self._chance(request)))
        upper = max(rest, bound(rest))
        return Prediction(made + rest, made + upper, "noisy_oracle")

    def _chance(self, request: PredictionInput) -> float:
        """Uniform on (0, 1), the same in every process and whatever else is predicted."""
        hashed = self._hash.copy()
        hashed.update(f"{request.id}/{request.output_tokens}".encode())
        return ((int.from_bytes(hashed.digest()) >> 12) + 0.5) / 2**52


def _relative(error: float) -> LogNoise:
    if not 0 <= error <= 10:
        raise ValueError(f"noisy_oracle.relative_error: {error} is not within 0 .. 10")
    return LogNoise(error)


def _binned(error: float, edges: Sequence[float]) -> BinNoise:
    if not 0 <= error <= 0.5:
        raise ValueError(f"noisy_oracle.bin_error: {error} is not within 0 .. 0.5")
    if not edges or not all(low < high < math.inf for low, high in zip([0.0, *edges], edges, strict=False)):
        raise ValueError(f"noisy_oracle.bin_edges: {list(edges)} is not a list of finite, increasing upper edges > 0")
    return BinNoise(error, tuple(edges))


def _ranked(tau: float, log_std: float, median: float) -> LogNoise:
    if not 0 < tau <= 1:
        raise ValueError(f"noisy_oracle.kendall_tau: {tau} is not > 0 and <= 1")
    for name, value in (("log_std", log_std), ("median_tokens", median)):
        if not 0 < value < math.inf:
            raise ValueError(f"noisy_oracle.{name}: {value} is not a finite number > 0")
    return lognormal_tau(tau, log_std, median)
