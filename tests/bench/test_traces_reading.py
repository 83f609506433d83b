"""What is right and wrong in a trace file, strict and lenient."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import pytest

from bench.errors import BadInput
from bench.traces.formats import FORMATS
from bench.traces.reading import Loaded

HEADER = "arrival_s,prompt_tokens,output_tokens,id\n"


def load(path: Path, text: str, kind: str = "plain", strict: bool = True) -> Loaded:
    path.write_text(text)
    return FORMATS[kind](path, strict, 0)


BAD = {  # a second row of a CSV: what is wrong with it
    "1,5,6": "3 cells where the header has 4",
    "1,5,6,b,7": "5 cells where the header has 4",
    "1,12.5,6,b": 'prompt_tokens is "12.5": not a whole number',
    "1,5,-3,b": 'output_tokens is "-3": below 1',
    "1,0,6,b": 'prompt_tokens is "0": below 1',
    "1,,6,b": 'prompt_tokens is "": empty',
    '1,"",6,b': 'prompt_tokens is "": empty',
    "1,1e12,6,b": 'prompt_tokens is "1e12": not a whole number',
    "1,1000000000000,6,b": 'prompt_tokens is "1000000000000": above 2147483647',
    "1,nan,6,b": 'prompt_tokens is "nan": not a whole number',
    "1,5,6,a": 'id is "a": used before',
    "1,5,6,": 'id is "": empty',
    "-1,5,6,b": 'arrival_s is "-1": not a number >= 0',
    "soon,5,6,b": 'arrival_s is "soon": not a number >= 0',
    ",5,6,b": 'arrival_s is "": empty',
    "1e10,5,6,b": 'arrival_s is "1e10": over 7000000 s after the first row',
}


@pytest.mark.parametrize("row", BAD)
def test_strict_raises_the_first_error_with_file_and_line(tmp_path: Path, row: str) -> None:
    with pytest.raises(BadInput) as refused:
        load(tmp_path / "t.csv", f"{HEADER}0,1,2,a\n{row}\n2,x,y,c\n")
    assert str(refused.value).startswith(f"{tmp_path}/t.csv:3: {BAD[row]}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("row", BAD)
def test_lenient_skips_and_counts_by_reason(tmp_path: Path, row: str) -> None:
    loaded = load(tmp_path / "t.csv", f"{HEADER}0,1,2,a\n{row}\n2,3,4,c\n", strict=False)
    assert loaded.rows["arrival"].tolist() == [0, 2 * 10**12]
    assert loaded.rows["id"].tolist() == ["a", "c"]
    name, _, why = BAD[row].partition(" is ")
    reason = f"{name}: {why.partition(': ')[2]}" if why else BAD[row]
    assert loaded.notes == {"rows": 3, "skipped": 1, f"skipped: {reason}": 1}


def test_lenient_with_everything_wrong_at_once(tmp_path: Path) -> None:
    good = "".join(f"{i},1,2,good{i}\n" for i in range(1, 11))
    text = HEADER + "0,1,2,a\n" + "\n".join(BAD) + "\n" + good
    loaded = load(tmp_path / "t.csv", text, strict=False)
    assert len(loaded.rows) == 11
    assert loaded.notes["rows"] == 11 + len(BAD)
    reasons = [n for name, n in loaded.notes.items() if name.startswith("skipped: ")]
    assert sum(int(n) for n in reasons) == loaded.notes["skipped"] == len(BAD)


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    """Blank lines and line ends inside quotes count."""
    text = 'arrival_s,prompt_tokens,output_tokens,prompt\n\n0,1,2,"a\nb"\n\n1,1,2,c\n2,1,x,d\n'
    with pytest.raises(BadInput, match=r"t\.csv:7: output_tokens"):
        load(tmp_path / "t.csv", text)
    loaded = load(tmp_path / "t.csv", text, strict=False)
    assert loaded.rows["prompt"].tolist() == ["a\nb", "c"]


def test_a_missing_column_names_what_is_there_and_what_is_expected(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as refused:
        load(tmp_path / "t.csv", "TIMESTAMP,Context,GeneratedTokens\n2023-11-16 18:17:03,1,2\n", "azure")
    message = str(refused.value)
    assert "no column ContextTokens" in message
    assert "found: TIMESTAMP, Context, GeneratedTokens" in message
    assert "expected: TIMESTAMP, ContextTokens, GeneratedTokens" in message


def test_a_missing_key_of_json_lines(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no column output_length; found: timestamp, input_length; expected"):
        load(tmp_path / "t.jsonl", '{"timestamp": 0, "input_length": 3}\n', "mooncake")
    text = '{"timestamp": 0, "input_length": 3, "output_length": 1}\n{"timestamp": 0, "input_length": 3}\n'
    with pytest.raises(BadInput, match=r't\.jsonl:2: output_length is "": empty'):
        load(tmp_path / "t.jsonl", text, "mooncake")


BAD_JSON = {
    "{": "not a JSON object",
    "[1, 2]": "not a JSON object",
    '{"arrival_s": 1} x': "not a JSON object",
    '{"arrival_s": 1, "prompt_tokens": 12.5, "output_tokens": 1}': 'prompt_tokens is "12.5": not a whole number',
    '{"arrival_s": 1, "prompt_tokens": true, "output_tokens": 1}': 'prompt_tokens is "True": not a whole number',
    '{"arrival_s": 1, "prompt_tokens": null, "output_tokens": 1}': 'prompt_tokens is "": empty',
    '{"arrival_s": 1, "prompt_tokens": 1e12, "output_tokens": 1}': 'prompt_tokens is "1e12": not a whole number',
    '{"arrival_s": NaN, "prompt_tokens": 1, "output_tokens": 1}': 'arrival_s is "nan": not a number >= 0',
    '{"arrival_s": 1, "prompt_tokens": 1, "output_tokens": -3}': 'output_tokens is "-3": below 1',
}


@pytest.mark.parametrize("row", BAD_JSON)
def test_json_lines(tmp_path: Path, row: str) -> None:
    text = f'{{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 2}}\n\n{row}\n'
    with pytest.raises(BadInput) as refused:
        load(tmp_path / "t.jsonl", text)
    assert str(refused.value).startswith(f"{tmp_path}/t.jsonl:3: {BAD_JSON[row]}")
    loaded = load(tmp_path / "t.jsonl", text, strict=False)
    assert (len(loaded.rows), loaded.notes["rows"], loaded.notes["skipped"]) == (1, 2, 1)


def test_extra_columns_of_the_header_are_left_alone(tmp_path: Path) -> None:
    loaded = load(tmp_path / "t.csv", "region,arrival_s,prompt_tokens,output_tokens\nx,0,1,2\n")
    assert list(loaded.rows) == ["arrival", "prompt_tokens", "output_tokens"]


def test_a_column_twice(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"t\.csv:1: column arrival_s twice"):
        load(tmp_path / "t.csv", "arrival_s,arrival_s,prompt_tokens,output_tokens\n0,1,1,2\n")


def test_whole_numbers_with_a_point_and_spaces_are_whole(tmp_path: Path) -> None:
    loaded = load(tmp_path / "t.csv", "arrival_s , prompt_tokens,output_tokens\n0, 12.0,7.\n")
    assert loaded.rows[["prompt_tokens", "output_tokens"]].to_numpy().tolist() == [[12, 7]]


@pytest.mark.parametrize(
    ("seconds", "picoseconds"),
    [
        ("0.1", 10**11),
        ("1e-05", 10**7),
        ("3600.000000000001", 3600 * 10**12 + 1),
        ("0.30000000000000004", 3 * 10**11),
        ("1.9999999999996", 2 * 10**12),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_seconds_are_read_by_their_digits(tmp_path: Path, suffix: str, seconds: str, picoseconds: int) -> None:
    text = {
        "csv": f"arrival_s,prompt_tokens,output_tokens\n0,1,1\n{seconds},1,1\n",
        "jsonl": '{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 1}\n'
        f'{{"arrival_s": {seconds}, "prompt_tokens": 1, "output_tokens": 1}}\n',
    }
    loaded = load(tmp_path / f"t.{suffix}", text[suffix])
    assert loaded.rows["arrival"].tolist() == [0, picoseconds]


def test_offsets_are_from_the_first_row_kept(tmp_path: Path) -> None:
    """Seconds since 1970 too, and rows out of order are put in order, those of one time as they stand."""
    text = HEADER + "1700000005.5,1,1,d\nx,1,1,a\n1700000001,2,1,b\n1700000001,3,1,c\n"
    loaded = load(tmp_path / "t.csv", text, strict=False)
    assert loaded.rows["arrival"].tolist() == [0, 0, 45 * 10**11]
    assert loaded.rows["id"].tolist() == ["b", "c", "d"]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_git_lfs_pointer_is_recognised(tmp_path: Path, kind: str) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4bb3783693d0a435686\nsize 52283111\n"
    with pytest.raises(BadInput, match=r"t\.csv: a Git LFS pointer, not the data"):
        load(tmp_path / "t.csv", pointer, kind)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00\x01,\n1,2", b"\x1f\x8b broken"])
def test_what_is_no_trace_at_all(tmp_path: Path, kind: str, content: bytes) -> None:
    for name in ("t.csv", "t.jsonl", "t.csv.gz"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BadInput, match=rf"{name}.*") as refused:
            FORMATS[kind](tmp_path / name, True, 0)
        assert "\n" not in str(refused.value)


def test_no_rows(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"t\.csv: no rows$"):
        load(tmp_path / "t.csv", HEADER)
    with pytest.raises(BadInput, match=r"no rows; skipped 1; skipped: prompt_tokens: empty 1"):
        load(tmp_path / "t.csv", HEADER + "0,,1,a\n", strict=False)


def test_gzip_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    text = "\ufeff" + HEADER + "0,1,2,a\r\n1,3,4,é\r\n"
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode()))
    loaded = FORMATS["plain"](tmp_path / "t.csv.gz", True, 0)
    assert loaded.rows["id"].tolist() == ["a", "é"]
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress((text + "1,x,4,c\r\n").encode()))
    with pytest.raises(BadInput, match=r"t\.csv\.gz:4: prompt_tokens"):
        FORMATS["plain"](tmp_path / "t.csv.gz", True, 0)


ROWS = 100_000


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_million_rows_in_ten_seconds(tmp_path: Path, suffix: str) -> None:
    """A tenth of them in a tenth of the time, counted as processor time: the machine may be busy with other things."""
    if suffix == "csv":
        text = HEADER + "".join(f"{i / 7:.6f},{i % 4000 + 1},{i % 300 + 1},r{i}\n" for i in range(ROWS))
    else:
        row = '{{"arrival_s": {:.6f}, "prompt_tokens": {}, "output_tokens": {}, "id": "r{}"}}\n'
        text = "".join(row.format(i / 7, i % 4000 + 1, i % 300 + 1, i) for i in range(ROWS))
    (tmp_path / f"t.{suffix}").write_text(text)
    began = time.process_time()
    assert len(FORMATS["plain"](tmp_path / f"t.{suffix}", True, 0).rows) == ROWS
    assert time.process_time() - began < 10 * ROWS / 1_000_000
