from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from predictors.pairs import frame, read_pairs
from predictors.split import (
    OUTPUTS,
    Leak,
    check_features,
    check_split,
    conversation_key,
    groups_of,
    prompt_key,
    split_by_prompt,
    split_by_time,
)


def rows(*texts, arrivals=None):
    n = len(texts)
    return frame(
        {
            "text": texts,
            "prompt_tokens": [3] * n,
            "tenant": ["t"] * n,
            "arrival": arrivals or [0] * n,
            "max_tokens": [9] * n,
            "source": ["s"] * n,
            "length": [5] * n,
            "capped": [False] * n,
        }
    )


@pytest.mark.parametrize("other", ["hello world", "  Hello,\n WORLD!! ", "hello_world"])
def test_prompts_that_differ_in_spelling_only_are_one(other):
    assert prompt_key(other) == prompt_key("Hello world.")


def test_different_prompts_are_different_even_without_a_letter():
    keys = [prompt_key(text) for text in ("Hello world", "Hello word", "", "?!", "🙂", "🙃", "你好")]
    assert len(set(keys)) == len(keys)


def test_the_turns_of_a_conversation_are_one_group():
    first = "User: Hi there"
    second = f"{first}\n\nAssistant: Hello.\n\nUser: And now?"
    assert conversation_key(first) == conversation_key(second) != conversation_key("User: Hi you")
    table = rows(first, second, "User: Hi you", None, None)
    assert groups_of(table).tolist() == [0, 0, 1, 2, 3], "a row without a text stands alone"
    assert groups_of(table, "prompt").tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="split by 'row'"):
        groups_of(table, "row")


def test_no_group_stands_on_both_sides_and_no_row_is_lost():
    table = rows(*[f"{'Prompt'.upper() if i % 2 else 'prompt'} {i // 6}" for i in range(600)])
    for seed in range(5):
        train, test = split_by_prompt(table, test=0.2, seed=seed)
        assert len(train) + len(test) == 600
        assert len(test) == 120
        check_split(train, test)
    again, _ = split_by_prompt(table, seed=0)
    other, _ = split_by_prompt(table, seed=1)
    assert again.equals(split_by_prompt(table, seed=0)[0])
    assert not again.equals(other)


def test_a_duplicate_over_the_split_is_refused():
    with pytest.raises(Leak, match=r"1 of 2 test rows .* 'what is TEA'"):
        check_split(rows("What is tea?", "b"), rows("what is TEA", "c"))
    check_split(rows("What is tea?", None), rows("What is a tea?", None))


def test_a_split_by_time_tests_on_what_came_later_and_is_new():
    table = rows(*"abcdefgha", "new", arrivals=[5, 4, 3, 2, 1, 0, 6, 7, 8, 9])
    train, test = split_by_time(table, test=0.3)
    assert train.text.tolist() == ["f", "e", "d", "c", "b", "a", "g"]
    assert test.text.tolist() == ["h", "new"], "'a' was in training"
    check_split(train, test)
    with pytest.raises(ValueError, match="no arrivals"):
        split_by_time(rows("a", "b"))


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_is_no_feature(name):
    with pytest.raises(Leak, match=name):
        check_features(("text", name))


def test_an_unknown_feature_is_named():
    check_features(("text", "time"))
    with pytest.raises(ValueError, match="unknown feature 'mood': expected some of text"):
        check_features(("text", "mood"))


def test_the_real_pairs_split_without_a_leak(shared):
    table = read_pairs(shared / "data" / "pairs" / "misc_permissive.jsonl.gz")
    for by in ("prompt", "conversation"):
        check_split(*split_by_prompt(table, by=by))
    at_random = np.random.default_rng(0).random(len(table)) < 0.2
    with pytest.raises(Leak):
        check_split(pd.DataFrame(table[~at_random]), pd.DataFrame(table[at_random]))
