"""Each format, on lines like the real ones and, where it is there, on the real file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from bench.errors import BadInput
from bench.traces.formats import FORMATS
from bench.traces.reading import Loaded

MS, SECOND = 10**9, 10**12


def load(path: Path, text: str, kind: str, strict: bool = True) -> Loaded:
    path.write_text(text)
    return FORMATS[kind](path, strict, 0)


def azure(path: Path, *times: str, strict: bool = True) -> Loaded:
    rows = "".join(f"{time},10,20\r\n" for time in times)
    return load(path / "azure.csv", f"TIMESTAMP,ContextTokens,GeneratedTokens\r\n{rows}", "azure", strict)


def test_azure_times_are_exact(tmp_path: Path) -> None:
    loaded = azure(tmp_path, *(f"2023-11-16 18:17:03.{digits}" for digits in ("001", "002", "009", "011")))
    assert loaded.rows["arrival"].tolist() == [0, 1 * MS, 8 * MS, 10 * MS]


def test_azure_seven_digits_nine_and_none(tmp_path: Path) -> None:
    loaded = azure(
        tmp_path, "2023-11-16 18:17:03.9799600", "2023-11-16 18:17:04", "2023-11-16T18:17:04.000000001",
        "2023-11-17 18:17:03.9799600",
    )  # fmt: skip
    assert loaded.rows["arrival"].tolist() == [0, 20_040_000_000, 20_040_001_000, 86_400 * SECOND]


def test_azure_zones_become_utc(tmp_path: Path) -> None:
    loaded = azure(tmp_path, "2024-05-10 00:00:00.5+00:00", "2024-05-10 02:00:01.5+02:00", "2024-05-10 00:00:02.5Z")
    assert loaded.rows["arrival"].tolist() == [0, SECOND, 2 * SECOND]


@pytest.mark.parametrize("times", [("10", "11+00:00"), ("10Z", "11")])
def test_azure_mixed_zones_are_not_guessed_at(tmp_path: Path, times: tuple[str, str]) -> None:
    stamps = [f"2024-05-10 00:00:{time}" for time in times]
    with pytest.raises(BadInput, match=r"azure\.csv:3: TIMESTAMP is .*: a time zone here but not in the first row"):
        azure(tmp_path, *stamps)
    assert azure(tmp_path, *stamps, strict=False).notes["skipped"] == 1


@pytest.mark.parametrize(
    "time",
    [
        "2023-13-01 00:00:00",
        "18:17:03",
        "2023-11-16",
        "yesterday",
        "2023-11-16 25:00:00",
        "2023-11-16 18:17:03.1234567891",
    ],
)
def test_azure_bad_times(tmp_path: Path, time: str) -> None:
    with pytest.raises(BadInput, match=r"azure\.csv:2: TIMESTAMP is .*: not a time like"):
        azure(tmp_path, time, "2023-11-16 18:17:04")
    assert azure(tmp_path, time, "2023-11-16 18:17:04Z", strict=False).notes["skipped"] == 1


def test_azure_code_hour(shared: Path) -> None:
    rows = FORMATS["azure"](shared / "data/traces/azure2023_code.csv", True, 0).rows
    assert len(rows) == 8819
    assert rows["arrival"].head(2).tolist() == [0, 52 * MS]
    assert rows.iloc[1][["prompt_tokens", "output_tokens"]].tolist() == [3180, 8]
    gaps = np.diff(rows["arrival"])
    assert gaps.std() / gaps.mean() == pytest.approx(13.2, abs=0.1)


def test_azure_conversation_hour(shared: Path) -> None:
    rows = FORMATS["azure"](shared / "data/traces/azure2023_conv.csv", True, 0).rows
    assert len(rows) == 19366
    gaps = np.diff(rows["arrival"])
    assert gaps.std() / gaps.mean() == pytest.approx(1.09, abs=0.01)


SIX = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
EIGHT = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def test_burstgpt_of_six_columns(tmp_path: Path) -> None:
    text = SIX + (
        "5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,0,1087,API log\n118.5,GPT-4,417,276,693,API log\n"
    )
    loaded = load(tmp_path / "b.csv", text, "burstgpt")
    assert loaded.rows["arrival"].tolist() == [0, 113_500 * MS]
    assert loaded.rows["tenant"].tolist() == ["ChatGPT", "GPT-4"]
    assert loaded.rows["output_tokens"].tolist() == [18, 276]
    assert loaded.notes == {"rows": 3, "skipped": 0, "failed_in_trace": 1}


def test_burstgpt_of_eight_columns(tmp_path: Path) -> None:
    text = EIGHT + "5,3,1.5,ChatGPT,472,18,490,Conversation log\n6,,2.5,ChatGPT,10,20,30,API log\n"
    loaded = load(tmp_path / "b.csv", text, "burstgpt")
    assert loaded.rows["user"].tolist() == ["3", ""]
    assert loaded.rows["prompt_tokens"].tolist() == [472, 10]


def test_burstgpt_time_starts_at_the_first_that_did_not_fail(tmp_path: Path) -> None:
    loaded = load(tmp_path / "b.csv", SIX + "5,A,4,0,4,x\n7,A,4,1,5,x\n9,A,4,1,5,x\n", "burstgpt")
    assert loaded.rows["arrival"].tolist() == [0, 2 * SECOND]


def test_burstgpt_where_all_failed(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="all 1 requests failed"):
        load(tmp_path / "b.csv", SIX + "5,A,4,0,4,x\n", "burstgpt")


def test_mooncake_counts_milliseconds(tmp_path: Path) -> None:
    text = '{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}\n'
    loaded = load(tmp_path / "m.jsonl", text + text.replace("27482", "30535.5"), "mooncake")
    assert loaded.rows.to_numpy().tolist() == [[0, 6955, 52], [3053_500_000_000, 6955, 52]]


def test_mooncake_conversation(shared: Path) -> None:
    rows = FORMATS["mooncake"](shared / "data/traces/mooncake_conversation.jsonl", True, 0).rows
    assert len(rows) == 12031
    assert rows["arrival"].iloc[-1] == 3_536_999 * MS
    assert rows["prompt_tokens"].max() == 126_195


def test_vidur(tmp_path: Path) -> None:
    text = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,13,199\n0.7079380001,36,137\n"
    loaded = load(tmp_path / "v.csv", text, "vidur")
    assert loaded.rows.to_numpy().tolist() == [[0, 13, 199], [207_938_000_100, 36, 137]]


def test_vtc_arena(shared: Path) -> None:
    rows = FORMATS["vtc"](shared / "data/traces/vtc_lmsys_arena_27tenants.csv", True, 0).rows
    assert len(rows) == 1500
    assert rows["tenant"].nunique() == 27
    assert rows["tenant"].value_counts().iloc[0] == 296
    assert rows["arrival"].iloc[[1, -1]].tolist() == [207_938_000_000, 600 * SECOND]


def client(*windows: list[object]) -> dict[str, object]:
    dists = {"input_tokens": [[10, 20], [0.25, 0.75]], "output_tokens": [[5], [1.0]]}
    later = {"input_tokens": [[99], [1.0]], "output_tokens": [[7], [1.0]]}
    return {"windows": list(windows), "dists": {"0": dists, "21600": later}}


def servegen(path: Path, clients: object, seed: int = 0) -> Loaded:
    path.write_bytes(gzip.compress(json.dumps(clients).encode()))
    return FORMATS["servegen"](path, True, seed)


def test_servegen_is_sampled_as_the_windows_say(tmp_path: Path) -> None:
    clients = {
        "a": client([0, 10.0, 2.0, "Gamma", 0.25, 1.0], [1200, 5.0, 1.0, "Weibull", 1.0, 1.0]),
        "b": client([21600, 1.0, 1.0, "Gamma", 1.0, 1.0]),
    }
    rows = servegen(tmp_path / "s.json.gz", clients).rows
    seconds = rows["arrival"] / SECOND
    a, first = rows["tenant"] == "a", seconds < 600
    assert (first.sum(), a.sum(), len(rows)) == (6000, 9000, 9600)
    assert not seconds.between(601, 1199).any()
    assert np.mean(rows["prompt_tokens"][a] == 10) == pytest.approx(0.25, abs=0.02)
    assert set(rows["output_tokens"][a]) == {5}
    assert set(rows["prompt_tokens"][~a]) == {99}
    gaps = np.diff(seconds[a & first])
    assert gaps.std() / gaps.mean() == pytest.approx(2.0, rel=0.1)


def test_servegen_draws_by_seed_and_client(tmp_path: Path) -> None:
    window = [0, 1.0, 1.0, "Gamma", 1.0, 1.0]
    one = servegen(tmp_path / "s.json.gz", {"a": client(window)}, seed=1).rows
    assert one.equals(servegen(tmp_path / "s.json.gz", {"a": client(window)}, seed=1).rows)
    assert not one.equals(servegen(tmp_path / "s.json.gz", {"a": client(window)}, seed=2).rows)
    two = servegen(tmp_path / "s.json.gz", {"b": client([0, 9.0, *window[2:]]), "a": client(window)}, seed=1).rows
    mine = two[two["tenant"] == "a"]["arrival"].to_numpy()
    assert (mine - mine[0]).tolist() == one["arrival"].tolist()


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"windows": []},
        client([0, 1.0, 1.0, "Pareto", 1.0, 1.0]),
        client([0, 1.0]),
        [],
        client([-9, 1, 1, "Gamma", 1, 1]),
    ],
)
def test_servegen_names_the_client_that_is_wrong(tmp_path: Path, broken: object) -> None:
    good = client([0, 1.0, 1.0, "Gamma", 1.0, 1.0])
    with pytest.raises(BadInput, match=r"s\.json\.gz: client b: not windows and dists"):
        servegen(tmp_path / "s.json.gz", {"a": good, "b": broken})


def test_servegen_deepseek_day(shared: Path) -> None:
    rows = FORMATS["servegen"](shared / "data/traces/deepseek_r1_24h.json.gz", True, 0).rows
    assert len(rows) == 1_383_669
    assert rows["tenant"].nunique() == 73
    assert rows["arrival"].iloc[-1] < 86_400 * SECOND
