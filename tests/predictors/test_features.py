from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predictors.features import FEATURES, MOST_CHARACTERS, clipped, describe


def feature(text, name):
    return describe(text)[FEATURES.index(name)]


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("Write 3 sentences on tea.", "asked_things", 1),
        ("Write 3 sentences on tea.", "asked_tokens", np.log1p(66)),
        ("In two short paragraphs or 50 words", "asked_things", 2),
        ("In two short paragraphs or 50 words", "asked_tokens", np.log1p(180)),
        ("A 500-word essay", "asked_tokens", np.log1p(650)),
        ("Write some sentences", "asked_tokens", -1),
        ("Be brief, be brief", "cue short", 2),
        ("Give a detailed answer", "cue long", 1),
        ("Why? Explain.", "cue explain", 2),
        ("Why? Explain.", "opens why", 1),
        ("Why? Explain.", "ends_in_stop", 1),
        ("Why is that?", "ends_in_question", 1),
        ("It cost 1,250.50 and then 3 and 3", "numbers", 3),
        ("It cost 1,250.50 and then 3 and 3", "distinct_numbers", 2),
        ("It cost 1,250.50 and then 3 and 3", "largest_number", np.log1p(1250.5)),
        ("hi", "turns", 1),
        ("User: hi\n\nAssistant: hello\n\nUser: bye", "turns", 3),
        ("User: hi\n\nAssistant: hello\n\nUser: bye", "last_answer", np.log1p(5)),
        ("User: hi\n\nAssistant: hello\n\nUser: bye", "words", np.log1p(1)),
        ("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", "turns", 1),
        ("Which?\nA. one\nB. two\nC. three", "choices", 3),
        ("Which?\nA. 12\nB. 3.5 kg\nC. three", "number_choices", 2 / 3),
        ("Which of two is it?\nA. 12\nB. 13", "stem_words", np.log1p(5)),
        ("Which of two is it?", "choices", 0),
    ],
)
def test_what_a_prompt_asks_for_is_seen(text, name, value):
    assert feature(text, name) == pytest.approx(value)


def test_names_are_distinct_and_each_has_a_number():
    assert len(set(FEATURES)) == len(FEATURES) == len(describe("x"))


def test_of_a_long_text_both_ends_are_read_and_its_length_is_known():
    text = "Be brief. " + "x " * 10**5 + "Why?"
    assert len(clipped(text)) == MOST_CHARACTERS + 1
    assert feature(text, "cue short") == 1
    assert feature(text, "cue explain") == 1
    assert feature(text, "all_characters") == pytest.approx(np.log1p(len(text)))


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(codec=None), max_size=200) | st.text("AB.) \n?1,<|>:userassistant", max_size=200))
def test_any_text_has_finite_features(text):
    assert np.isfinite(describe(text)).all()
    clipped(text).encode()
