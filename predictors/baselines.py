"""What a learned predictor has to beat: the median, the prompt's length, the tenant's average, TF-IDF and ridge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge

from predictors.api import Prediction, PredictionInput, Predictor
from predictors.conformal import rank_bound
from predictors.encoder import WITH_SIGNS, Floats
from predictors.pairs import inputs_of
from predictors.split import groups_of, held_out

STRENGTHS = {"l2": (0.3, 1.0, 3.0, 10.0), None: (300.0, 1000.0, 3000.0, 10000.0)}
"""Of the ridge, by the norm of a prompt's words."""


class Model(Protocol):
    def log_lengths(self, inputs: Sequence[PredictionInput]) -> Floats: ...


class Baseline(Predictor):
    """A model of the log-length; `upper` is as far above as a share `quantile` of its training rows was."""

    def __init__(self, name: str, model: Model, rows: pd.DataFrame, quantile: float = 0.9) -> None:
        self.name = name
        self.model = model
        known = rows[~rows.capped]
        errors = _logs(known) - model.log_lengths(inputs_of(known))
        self._above = rank_bound(errors, quantile)

    def predict(self, inputs: Sequence[PredictionInput]) -> list[Prediction]:
        lengths = np.exp(self.model.log_lengths(inputs))
        uppers = lengths * np.exp(self._above)
        return [Prediction(*_within(i, e, u), self.name) for i, e, u in zip(inputs, lengths, uppers, strict=True)]


class Median:
    """The training median for everybody."""

    def __init__(self, rows: pd.DataFrame) -> None:
        self._log = float(np.log(rows.length.median()))

    def log_lengths(self, inputs: Sequence[PredictionInput]) -> Floats:
        return np.full(len(inputs), self._log)


class PromptLength:
    """A line through log-length over log prompt tokens."""

    def __init__(self, rows: pd.DataFrame) -> None:
        self._line = np.polyfit(np.log1p(rows.prompt_tokens.to_numpy(dtype=np.float64)), _logs(rows), 1)

    def log_lengths(self, inputs: Sequence[PredictionInput]) -> Floats:
        tokens = np.array([i.prompt_tokens for i in inputs], dtype=np.float64)
        return np.asarray(np.polyval(self._line, np.log1p(tokens)), dtype=np.float64)


class TenantAverage:
    """The mean length of the tenant's last `window` training rows; of everybody's, for an unseen tenant."""

    def __init__(self, rows: pd.DataFrame, window: int = 100) -> None:
        self._logs = {tenant: float(np.log(part.length[-window:].mean())) for tenant, part in rows.groupby("tenant")}
        self._everybody = float(np.log(rows.length[-window:].mean()))

    def log_lengths(self, inputs: Sequence[PredictionInput]) -> Floats:
        return np.array([self._logs.get(i.tenant, self._everybody) for i in inputs])


class TfidfRidge:
    """Ridge regression of the log-length on TF-IDF of words and word pairs, one for each tenant.

    How strong the ridge is does best on a fifth of the training prompts, after fitting to the others. `tuned`: single
    letters and signs are words too; and whether each prompt's words have length 1 together is chosen likewise.
    """

    def __init__(self, rows: pd.DataFrame, tuned: bool = False) -> None:
        self._fitted = {tenant: _tfidf_ridge(part, tuned) for tenant, part in rows.groupby("tenant")}

    def log_lengths(self, inputs: Sequence[PredictionInput]) -> Floats:
        logs = np.zeros(len(inputs))
        tenants: npt.NDArray[np.object_] = np.array([i.tenant for i in inputs], dtype=object)
        for tenant, (words, ridge) in self._fitted.items():
            at = np.flatnonzero(tenants == tenant)
            if len(at):
                logs[at] = ridge.predict(words.transform([inputs[int(i)].text or "" for i in at]))
        return logs


BASELINES: Mapping[str, Callable[[pd.DataFrame], Model]] = {
    "TF-IDF + ridge": TfidfRidge,
    "tenant average": TenantAverage,
    "prompt length": PromptLength,
    "median": Median,
}
"""The strongest first."""


def _tfidf_ridge(rows: pd.DataFrame, tuned: bool) -> tuple[TfidfVectorizer, Ridge]:
    out = held_out(groups_of(rows), 0.2, seed=0)
    logs, tried = _logs(rows), []
    options = {"ngram_range": (1, 2), "min_df": 2, "sublinear_tf": True}
    for norm in STRENGTHS if tuned else ("l2",):
        words = TfidfVectorizer(norm=norm, **options, **({"token_pattern": WITH_SIGNS} if tuned else {}))
        x = words.fit_transform(rows.text)
        for strength in STRENGTHS[norm]:
            ridge = Ridge(strength).fit(x[~out], logs[~out])
            tried.append((float(np.mean((ridge.predict(x[out]) - logs[out]) ** 2)), strength, words, x))
    _, strength, words, x = min(tried, key=lambda one: one[0])
    return words, Ridge(strength).fit(x, logs)


def _logs(rows: pd.DataFrame) -> Floats:
    logs: Floats = np.log(rows.length.to_numpy(dtype=np.float64))
    return logs


def _within(request: PredictionInput, expected: float, upper: float) -> tuple[float, float]:
    expected = float(min(max(expected, request.output_tokens + 1), request.max_tokens))
    return expected, float(min(max(upper, expected), request.max_tokens))
