"""Text comes whole: no half characters, no stop strings, nothing lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from backend.torch_device.detokenise import Detokeniser, StopText


@pytest.fixture(scope="module")
def bytewise() -> Any:
    """One token a byte: every character above 127 takes several."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=inner)


TEXTS = ["🙂🙂 日本語 é", "plain", "a\ufffdb", "\ufffd", " leading", "two  spaces\n\ttab", "e\u0301👩\u200d👧"]


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_join_to_the_text(bytewise: Any, text: str) -> None:
    stream = Detokeniser(bytewise)
    pieces = [stream.push(i) for i in bytewise.encode(text)]
    assert "".join(pieces) + stream.flush() == text
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)
        assert pieces.count("") == len(text.encode()) - len(text)


def test_a_cut_tail_is_flushed(bytewise: Any) -> None:
    stream = Detokeniser(bytewise)
    pieces = [stream.push(i) for i in bytewise.encode("né")[:-1]]
    assert pieces == ["n", ""]
    assert stream.flush() == "\ufffd"
    assert stream.flush() == ""


def test_interleaved_streams_share_nothing(bytewise: Any) -> None:
    texts = ["日本", "🙂é"]
    streams = [Detokeniser(bytewise) for _ in texts]
    out = ["", ""]
    for step in range(6):
        for which in (0, 1):
            out[which] += streams[which].push(bytewise.encode(texts[which])[step])
    assert out == texts


def test_a_real_tokenizer(shared: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(shared / "data" / "smollm2_tokenizer")
    for text in TEXTS:
        stream = Detokeniser(tokenizer)
        ids = tokenizer.encode(text)
        assert "".join([stream.push(i) for i in ids]) + stream.flush() == tokenizer.decode(ids)


@pytest.mark.parametrize(
    ("text", "stop", "expected", "stopped"),
    [
        ("one END two", ["END"], "one ", True),
        ("one EN two", ["END"], "one EN two", False),
        ("ends with EN", ["END"], "ends with EN", False),
        ("aab", ["ab", "aab"], "", True),
        ("x🙂y", ["🙂"], "x", True),
        ("nothing", [], "nothing", False),
    ],
)
def test_stop_strings_never_show(bytewise: Any, text: str, stop: list[str], expected: str, stopped: bool) -> None:
    stream = StopText(Detokeniser(bytewise), stop)
    out = ""
    for i in bytewise.encode(text):
        out += stream.push(i)
        assert expected.startswith(out)
        if stream.stopped:
            break
    assert (out + stream.flush(), stream.stopped) == (expected, stopped)
