from __future__ import annotations

import numpy as np
import pytest

from predictors.encoder import EMBEDDING_WEIGHT, HAND_WEIGHT, TextEncoder
from predictors.features import FEATURES

TEXTS = ["write a story", "write a poem", "name a book", "name a poem in French"]
NONE = np.zeros((4, 0))


def words_of(encoder, text):
    """(words,) the weighted words of a text."""
    encoded = encoder.encode([text], np.zeros((1, 0)))
    return encoded.linear.toarray()[0, : len(encoder.kept)]


def test_words_of_two_prompts_are_kept_and_their_weights_have_length_one():
    encoder = TextEncoder.fit(TEXTS, np.arange(4), NONE, topics=0, seed=0)
    assert len(encoder.kept) == 7  # write, write a, a, poem, a poem, name, name a
    for text in TEXTS:
        assert np.linalg.norm(words_of(encoder, text)) == pytest.approx(1)
    rare, common = words_of(encoder, "poem")[words_of(encoder, "poem") > 0], words_of(encoder, "a")
    assert rare.tolist() == common[common > 0].tolist() == [1]
    both = np.sort(words_of(encoder, "poem z a"))[::-1]
    assert both[0] > both[1] > both[2] == 0, "what stands in fewer prompts weighs more"


def test_a_word_of_one_conversation_only_is_not_kept():
    turns = ["user: about zebras", "user: about zebras and more", "user: about lions"]
    encoder = TextEncoder.fit(turns, np.array([0, 0, 1]), np.zeros((3, 0)), topics=0, seed=0)
    assert not words_of(encoder, "zebras").any()
    assert words_of(encoder, "about").any()


def test_what_was_never_seen_is_not_known():
    encoder = TextEncoder.fit(TEXTS, np.arange(4), NONE, topics=0, seed=0)
    encoded = encoder.encode(["write", "schreibe", "", None, "  "], np.zeros((5, 0)))
    assert encoded.known.tolist() == [True, False, False, False, False]
    assert np.isnan(encoded.dense[2:, : len(FEATURES)]).all()
    assert not np.isnan(encoded.dense[:2]).any()
    assert np.isfinite(encoded.linear.toarray()).all()


def test_embeddings_stand_beside_the_words():
    vectors = np.eye(4)[:, :3]
    encoder = TextEncoder.fit([None] * 4, np.arange(4), vectors, topics=0, seed=0)
    encoded = encoder.encode([None] * 4, vectors)
    assert encoded.known.tolist() == [True, True, True, False]
    assert encoded.linear.shape == (4, len(FEATURES) + 3)
    assert encoded.linear.toarray()[:, -3:] == pytest.approx(EMBEDDING_WEIGHT * vectors)


def test_hand_made_features_are_small_beside_the_words_and_bounded():
    encoder = TextEncoder.fit(TEXTS, np.arange(4), NONE, topics=0, seed=0)
    odd = encoder.encode(["? " * 10**4], np.zeros((1, 0))).linear.toarray()[0, len(encoder.kept) :]
    assert np.abs(odd).max() == pytest.approx(4 * HAND_WEIGHT)


def test_topics_are_directions_that_prompts_differ_in():
    texts = [f"{a} {b} {i}" for i in range(30) for a, b in (("sun", "moon"), ("bread", "butter"))]
    encoder = TextEncoder.fit(texts, np.arange(60), np.zeros((60, 0)), topics=2, seed=0)
    topics = encoder.encode(texts, np.zeros((60, 0))).dense[:, len(FEATURES) :]
    assert topics.shape == (60, 2)
    near, far = np.linalg.norm(topics[0] - topics[2]), np.linalg.norm(topics[0] - topics[1])
    assert far > 3 * near


@pytest.mark.parametrize("embedded", [False, True])
def test_prompts_that_are_alike_lie_near_each_other(embedded):
    texts = [f"{a} {b} {i}" for i in range(30) for a, b in (("sun", "moon"), ("bread", "butter"))]
    vectors = np.tile([[1.0, 0.0], [0.8, 0.6]], (30, 1)) if embedded else np.zeros((60, 0))
    encoder = TextEncoder.fit(texts, np.arange(60), vectors, topics=5, seed=0)
    asked = ["moon sun 3", "sun moon 4", "butter bread 3", None]
    given = vectors[[0, 0, 1, 0]] * [[1], [1], [1], [0]]
    points = encoder.encode(asked, given).points
    near, far = np.linalg.norm(points[0] - points[1]), np.linalg.norm(points[0] - points[2])
    assert far > 2 * near
    assert np.isfinite(points).all()
