from __future__ import annotations

import gzip
import json
import math

import pandas as pd
import pytest

from predictors.pairs import COLUMNS, BadRows, inputs_of, read_pairs, rows_of_run


def write(path, *pairs):
    text = "\n".join(p if isinstance(p, str) else json.dumps(p) for p in pairs)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["pairs.jsonl", "pairs.jsonl.gz"])
def test_a_prompt_and_a_length_are_enough(tmp_path, name):
    rows = read_pairs(
        write(tmp_path / name, {"prompt": "Héllo, how are you", "length": 7}, "", {"prompt": "", "length": 0})
    )
    assert list(rows.columns) == list(COLUMNS)
    assert rows.text.tolist() == ["Héllo, how are you", ""]
    assert rows.length.tolist() == [7, 1], "an empty answer still has its EOS"
    assert rows.prompt_tokens.tolist() == [4, 0]
    assert rows.tenant.tolist() == ["default", "default"]
    assert rows.source.tolist() == [name, name]
    assert not rows.capped.any()


def test_what_a_pair_says_beside_is_read(tmp_path):
    pair = {"source": "exam", "model": "m", "prompt": "p", "prompt_tokens_est": 12, "response_len_chars": 99}
    pair |= {"response_tokens_est": 400, "max_new_tokens": 400.0, "sampling": "greedy", "sample": 0}
    rows = read_pairs(write(tmp_path / "p.jsonl", pair, {**pair, "response_tokens_est": 399, "max_new_tokens": None}))
    assert rows.iloc[0].tolist() == ["p", 12, "m", 0, 400, "exam", 400, True]
    assert rows.capped.tolist() == [True, False]
    capped = read_pairs(tmp_path / "p.jsonl", caps={"m": 390, "other": 1})
    assert capped.capped.tolist() == [True, True]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "p.jsonl:2: not JSON"),
        ("[1, 2]", "p.jsonl:2: not an object"),
        ({"length": 3, "text": "x"}, "p.jsonl:2: no prompt; found length, text"),
        ({"prompt": None, "length": 3}, "p.jsonl:2: no prompt"),
        ({"prompt": "x"}, "p.jsonl:2: no length; found prompt, expected one of length, output_tokens"),
        ({"prompt": "x", "length": -3}, "p.jsonl:2: length is -3, not a count"),
        ({"prompt": "x", "length": 12.5}, "p.jsonl:2: length is 12.5, not a count"),
        ({"prompt": "x", "length": "7"}, "p.jsonl:2: length is '7', not a count"),
        ({"prompt": "x", "length": True}, "p.jsonl:2: length is True, not a count"),
        ({"prompt": "x", "length": math.inf}, "p.jsonl:2: length is inf, not a count"),
        ({"prompt": "x", "length": 10**12}, "p.jsonl:2: length is 1000000000000, not a count"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
    with pytest.raises(BadRows, match=message):
        read_pairs(write(tmp_path / "p.jsonl", {"prompt": "x", "length": 3}, line))


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    whole = write(tmp_path / "p.jsonl.gz", *[{"prompt": f"{i} {i**9}", "length": i} for i in range(500)])
    whole.write_bytes(whole.read_bytes()[:-100])
    with pytest.raises(BadRows, match=r"p.jsonl.gz:\d+: cannot be read"):
        read_pairs(whole)
    with pytest.raises(BadRows, match=r"none.jsonl:1: cannot be read: .*No such file"):
        read_pairs(tmp_path / "none.jsonl")
    (tmp_path / "latin.jsonl").write_bytes(b'{"prompt": "\xe9", "length": 1}')
    with pytest.raises(BadRows, match=r"latin.jsonl:1: cannot be read"):
        read_pairs(tmp_path / "latin.jsonl")


def test_finished_requests_become_rows():
    requests = pd.DataFrame(
        [
            ("a", "t1", 10, 100, 5, "completed", 30, "stop"),
            ("b", "t1", 11, 100, 6, "completed", 100, "length"),
            ("c", "t2", 12, 100, 7, "cancelled", 40, "cancelled"),
            ("d", "t2", 13, 100, 8, "cancelled", 0, "cancelled"),
            ("e", "t2", 14, 100, 9, "rejected", 0, "too long"),
            ("f", "t2", 14, 100, 9, "unfinished", 20, None),
        ],
        columns=["id", "tenant", "prompt_tokens", "max_tokens", "arrival", "state", "output_tokens", "finish_reason"],
    )
    rows = rows_of_run(requests, {"a": "hello"})
    assert rows.text.tolist() == ["hello", None, None]
    assert rows.length.tolist() == [30, 100, 40]
    assert rows.capped.tolist() == [False, True, True]
    assert rows.arrival.tolist() == [5, 6, 7]
    with pytest.raises(BadRows, match="no column output_tokens; found id"):
        rows_of_run(requests.drop(columns="output_tokens"))


def test_a_predictor_is_never_told_the_length(corpus):
    for request in inputs_of(corpus.rows.head(20)):
        assert request.truth is None
        assert request.output_tokens == 0


def test_the_real_pairs_are_all_read(shared):
    pairs = shared / "data" / "pairs"
    counts = {"arena_hard": 2250, "misc_permissive": 18_014, "oasst_model_eval": 9779}
    for name, count in counts.items():
        rows = read_pairs(pairs / f"{name}.jsonl.gz")
        assert len(rows) == count
        assert (rows.length >= 1).all()
    assert rows.capped.sum() > 500, "the OASST models stop at 400 tokens"
