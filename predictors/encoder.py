"""Prompts as numbers: hashed and weighted words and word pairs, hand-made features, and what they are about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.utils.extmath import randomized_svd

from predictors.features import FEATURES, clipped, describe

Floats = npt.NDArray[np.float64]
Points = npt.NDArray[np.float32]

BUCKETS = 2**17
FEWEST_PROMPTS = 2
"""A word, or a pair of words, that stands in fewer prompts says nothing."""
HAND_WEIGHT = 0.05
"""Of a standardised hand-made feature beside the words of a prompt, which have length 1 together."""
EMBEDDING_WEIGHT = 0.4
"""Of an embedding, which has length 1 itself, beside the words."""
HAND_DISTANCE = 0.085
"""The same, where it is asked how far apart two prompts are."""
TOPIC_DISTANCE = 0.6
"""Of the direction of a prompt's topics, beside that of its embedding, which is 1."""
TREE_TOPICS = 60
FARTHEST = 4.0  # standard deviations

WITH_SIGNS = r"\w+|[^\w\s]"
"""Single letters and signs are words too."""

_WORDS = HashingVectorizer(
    n_features=BUCKETS, ngram_range=(1, 2), token_pattern=WITH_SIGNS, alternate_sign=False, norm=None
)


@dataclass(frozen=True, slots=True)
class Encoded:
    """n prompts. Those without an embedding or any word that was seen in training are not `known`."""

    linear: sparse.csr_matrix  # (n, words + hand-made features + embedding): for linear models, on one scale
    dense: Floats  # (n, hand-made features + topics): for trees, as they are; NaN without a text
    points: Points  # (n, topics + embedding + hand-made features): near each other where prompts are alike
    known: npt.NDArray[np.bool_]  # (n,)

    def take(self, places: npt.NDArray[np.int64]) -> Encoded:
        return Encoded(self.linear[places], self.dense[places], self.points[places], self.known[places])


@dataclass(frozen=True)
class TextEncoder:
    """Made from texts, and their embeddings if any: (n, width), rows of length 1, or 0 where there is none."""

    kept: npt.NDArray[np.int64]  # (words,) buckets that enough prompts fall into
    weight: Floats  # (words,) inverse document frequency
    center: Floats  # (hand-made features,)
    scale: Floats  # (hand-made features,)
    axes: Points  # (words, topics)
    embedding_axes: Points  # (width, topics)
    embedding_center: Floats  # (width,)

    @classmethod
    def fit(
        cls, texts: Sequence[str | None], groups: npt.NDArray[np.int64], embeddings: Floats, topics: int, seed: int
    ) -> TextEncoder:
        """Learn which words matter from different texts.

        Words are counted by group, a conversation being one: what stands in one conversation only, though in several
        turns, says nothing of others, and would make held-out prompts look unlike fresh ones.
        """
        spoken = [text for text in texts if text]
        counts = _counts(spoken)
        of = groups[[bool(text) for text in texts]]
        in_groups = np.unique(np.repeat(of, np.diff(counts.indptr)) * BUCKETS + counts.indices) % BUCKETS
        prompts = np.bincount(in_groups, minlength=BUCKETS)
        kept = np.flatnonzero(prompts >= FEWEST_PROMPTS)
        weight = np.log((1 + len(np.unique(of))) / (1 + prompts[kept])) + 1
        hand = _hand(spoken) if spoken else np.zeros((1, len(FEATURES)))
        topics = min(topics, len(texts) // 10)
        axes = _axes(_weighted(counts[:, kept], weight), topics, seed)
        seen_from = (_axes(embeddings, min(topics, TREE_TOPICS), seed), embeddings.mean(axis=0))
        return cls(kept, weight, hand.mean(axis=0), hand.std(axis=0) + 1e-9, axes, *seen_from)

    def encode(self, texts: Sequence[str | None], embeddings: Floats) -> Encoded:
        spoken = [text or "" for text in texts]
        hand = _hand(spoken)
        hand[[not text.strip() for text in spoken]] = np.nan
        scaled = np.clip(np.nan_to_num(hand - self.center) / self.scale, -FARTHEST, FARTHEST) * HAND_WEIGHT
        words = _weighted(_counts(spoken)[:, self.kept], self.weight)
        linear = sparse.hstack(
            [words, sparse.csr_matrix(np.hstack([scaled, EMBEDDING_WEIGHT * embeddings]))], format="csr"
        )
        topics = words.astype(np.float32) @ self.axes
        dense = np.hstack([hand, topics[:, :TREE_TOPICS], embeddings @ self.embedding_axes])
        known = (np.diff(words.indptr) > 0) | embeddings.any(axis=1)
        return Encoded(linear, dense, self._points(topics, embeddings, scaled), known)

    def _points(self, topics: Points, embeddings: Floats, hand: Floats) -> Points:
        """Directions of the embedding, if any, and of the words' topics (but the first, which all share)."""
        parts = [_unit(topics[:, 1:]), hand * (HAND_DISTANCE / HAND_WEIGHT)]
        if embeddings.shape[1]:
            parts = [TOPIC_DISTANCE * parts[0], _unit(embeddings - self.embedding_center), parts[1]]
        return np.hstack(parts).astype(np.float32)


def _unit(rows: Floats | Points) -> Floats:
    """Each of length 1, or 0."""
    size = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(size, 1e-9), dtype=np.float64)


def _counts(texts: Sequence[str]) -> sparse.csr_matrix:
    if not texts:
        return sparse.csr_matrix((0, BUCKETS))
    return sparse.csr_matrix(_WORDS.transform([clipped(text) for text in texts]))


def _hand(texts: Sequence[str]) -> Floats:
    return np.array([describe(text) for text in texts]).reshape(len(texts), len(FEATURES))


def _weighted(counts: sparse.csr_matrix, weight: Floats) -> sparse.csr_matrix:
    """Rows of length 1; those without a word stay 0."""
    words = counts.astype(np.float64)
    words.data = (1 + np.log(words.data)) * weight[words.indices]
    row = np.repeat(np.arange(words.shape[0]), np.diff(words.indptr))
    words.data /= np.sqrt(np.bincount(row, words.data**2, words.shape[0]))[row]
    return words


def _axes(matrix: sparse.csr_matrix | Floats, topics: int, seed: int) -> Points:
    """The directions in which the rows differ most, as columns; none of a matrix too narrow for so many."""
    if topics < 1 or matrix.shape[1] <= topics:
        return np.zeros((matrix.shape[1], 0), dtype=np.float32)
    _, _, directions = randomized_svd(matrix, topics, n_iter=4, random_state=seed)
    return np.ascontiguousarray(directions.T, dtype=np.float32)
