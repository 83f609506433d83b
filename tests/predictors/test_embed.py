from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaModel, PreTrainedTokenizerFast

from predictors.embed import TextEmbedder

WORDS = ["[UNK]", "</s>", "write", "a", "story", "about", "tea", "name", "one", "book"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model as one that is served: decoder only, and no pad token."""
    folder = tmp_path_factory.mktemp("model")
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", eos_token="</s>").save_pretrained(folder)
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    LlamaModel(LlamaConfig(vocab_size=len(WORDS), **shape)).save_pretrained(folder)
    return folder


def test_a_text_is_a_vector_of_length_one_whoever_stands_beside(folder):
    texts = ["write a story about tea", "name one book", "write", "unheard-of words", None, "", "  ", "name one book"]
    together = TextEmbedder(str(folder)).embed(texts)
    assert together.shape == (8, 16)
    assert np.linalg.norm(together, axis=1) == pytest.approx([1, 1, 1, 1, 0, 0, 0, 1])
    assert (together[1] == together[7]).all()
    for text, vector in zip(texts, together, strict=True):
        assert TextEmbedder(str(folder)).embed([text])[0] == pytest.approx(vector, abs=1e-5)


def test_what_was_embedded_once_is_not_computed_again(folder, tmp_path):
    cache = tmp_path / "vectors.sqlite"
    first = TextEmbedder(str(folder), cache=cache)
    vectors = first.embed(["write a story", "name"])
    second = TextEmbedder(str(folder), cache=cache)
    second._model = None  # nothing left to compute with
    assert (second.embed(["name", "write a story"]) == vectors[::-1]).all()
    shorter = TextEmbedder(str(folder), max_tokens=2, cache=cache)
    assert shorter.name != first.name
    assert not (shorter.embed(["write a story"]) == vectors[0]).all()


def test_a_long_text_is_cut(folder):
    embedder = TextEmbedder(str(folder), max_tokens=4)
    assert embedder.embed(["write a story about " * 10**5]) == pytest.approx(
        embedder.embed(["write a story about"]), abs=1e-5
    )


def test_a_model_that_is_not_there_is_named():
    with pytest.raises(
        FileNotFoundError, match="embedder 'no-such-encoder': neither a folder nor an installed package"
    ):
        TextEmbedder("no-such-encoder")
