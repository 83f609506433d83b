"""What can never run is refused at once, with the numbers; what can run is run to its last token."""

from __future__ import annotations

from typing import Any

import pytest

from backend.errors import BadConfig, DuplicateId, Refused
from engine_by_hand import Machine
from policies.fcfs import FCFS
from traffic_by_hand import run, traffic

both_loops = pytest.mark.parametrize("overlap", [False, True], ids=["sync", "overlap"])
each_admission = pytest.mark.parametrize("admission", ["optimistic", "reserve", "peak"])


def eight_blocks(overlap: bool = False, **settings: Any) -> Machine:
    """128 tokens of KV, and a model length set beyond them."""
    return Machine(blocks=8, overlap=overlap, max_model_len=4096, **settings)


@both_loops
@each_admission
def test_a_prompt_beyond_the_pool_is_refused_and_one_that_fills_it_makes_its_token(
    admission: str, overlap: bool
) -> None:
    m = eight_blocks(overlap, admission=admission)
    with pytest.raises(Refused, match=r"needs 9 KV blocks, 8 are available"):
        m.add(prompt=129, max_tokens=1)
    full, behind = m.add(prompt=128, output=99, max_tokens=1), m.add(prompt=5, output=3, max_tokens=9)
    m.drain()
    assert (full.base, full.finish_reason) == (1, "length")
    assert (behind.base, behind.finish_reason) == (3, "stop")
    assert behind.preemptions == full.preemptions == 0


@both_loops
@each_admission
@pytest.mark.parametrize(("limit", "needed"), [(9, None), (10, 9), (24, 9), (25, 9), (26, 10), (None, 256)])
def test_prompt_120(limit: int | None, needed: int | None, admission: str, overlap: bool) -> None:
    """Token k needs KV of 120 + k - 1 tokens: nine fit 128. Without a limit it is what the model length leaves."""
    m = eight_blocks(overlap, admission=admission)
    if needed is None:
        request = m.add(prompt=120, output=999, max_tokens=limit)
        m.drain()
        assert (request.base, request.finish_reason, m.device.peak) == (9, "length", 128)
    else:
        with pytest.raises(Refused, match=f"needs {needed} KV blocks, 8 are available"):
            m.add(prompt=120, max_tokens=limit)


def test_model_length_is_the_pool_by_default() -> None:
    """prompt + output fit 128: no more than eight tokens after a prompt of 120."""
    m = Machine(blocks=8)
    request = m.add(prompt=120, output=999)
    m.drain()
    assert (request.base, request.finish_reason) == (8, "length")


@both_loops
@pytest.mark.parametrize(
    ("prompt", "limit", "made"),
    [(151, 200, 105), (255, None, 1), (255, 50, 1), (4, 10**12, 252), (4, None, 252), (4, 7, 7), (254, 2, 2)],
)
def test_max_tokens_is_clipped_to_a_model_length_of_256(
    prompt: int, limit: int | None, made: int, overlap: bool
) -> None:
    m = Machine(model_len=256, overlap=overlap)
    request = m.add(prompt=prompt, output=10**6, max_tokens=limit)
    assert request.view is not None
    assert request.view.max_tokens == made
    m.drain()
    assert (request.base, request.finish_reason, request.state) == (made, "length", "completed")


@pytest.mark.parametrize(
    ("prompt", "limit", "message"),
    [
        (256, None, "prompt of 256 tokens leaves no room for output in max_model_len = 256"),
        (257, 1, "prompt of 257 tokens leaves no room for output in max_model_len = 256"),
        (0, None, "prompt of 0 tokens: at least 1 is needed"),
        (4, 0, "max_tokens = 0 is not >= 1"),
        (4, -1, "max_tokens = -1 is not >= 1"),
        (4, -(10**12), "max_tokens = -1000000000000 is not >= 1"),
    ],
)
def test_what_cannot_run_is_refused_with_a_reason_and_the_others_go_on(
    prompt: int, limit: int | None, message: str
) -> None:
    m = Machine(model_len=256)
    before = m.add(output=5)
    m.step()
    with pytest.raises(Refused) as error:
        m.add("bad", prompt=prompt, max_tokens=limit)
    assert str(error.value) == f"request bad: {message}"
    after = m.add(output=5)
    m.drain()
    assert (before.base, after.base) == (5, 5)
    assert list(m.engine.journal.details.values()) == [message]


@both_loops
def test_a_live_id_twice_fails_only_that_call(overlap: bool) -> None:
    m = Machine(overlap=overlap)
    first, other = m.add("x", output=6), m.add("y", output=6)
    m.step()
    with pytest.raises(DuplicateId, match="request x"):
        m.add("x")
    m.drain()
    assert (first.base, other.base) == (6, 6)


@both_loops
def test_refusals_in_a_run_are_counted_and_change_nothing_for_the_others(overlap: bool) -> None:
    prompts = [4, 300, 20, 256, 9, 255]
    settings = {"overlap": overlap, "model_len": 256, "max_num_seqs": 2}
    all_six = run(traffic(prompts, 5), FCFS(), **settings).records.requests
    assert list(all_six["state"]) == ["completed", "rejected", "completed", "rejected", "completed", "completed"]
    assert set(all_six.loc[all_six["state"] == "rejected", "finish_reason"]) == {"refused"}
    assert (all_six.loc[all_six["state"] == "rejected", ["scheduled", "first_token"]] == -1).all(axis=None)
    good = all_six[all_six["state"] == "completed"]
    alone = run(traffic([p for p in prompts if p < 256], 5), FCFS(), **settings).records.requests
    columns = ["scheduled", "first_token", "last_token", "output_tokens"]
    assert good[columns].to_numpy().tolist() == alone[columns].to_numpy().tolist()
    assert list(good["output_tokens"]) == [5, 5, 5, 1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_model_len": 300}, r"engine\.max_model_len: 300 is more than the model's 256"),
        ({"max_num_seqs": 0}, r"engine\.max_num_seqs: 0 is not >= 1"),
        ({"max_num_batched_tokens": 255}, r"engine\.max_num_batched_tokens: 255 is less than engine\.max_num_seqs"),
        ({"chunked_prefill": False, "max_num_batched_tokens": 255, "max_num_seqs": 1}, "may never fit a step"),
        ({"admission": "hopeful"}, r"engine\.admission: 'hopeful' is none of optimistic, reserve, peak"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        Machine(model_len=256, **settings)
