"""Honest splits: what stands on both sides of a split was not predicted but remembered.

The same prompt stands in many rows (several models, several samples), a conversation in one row for each turn.
Rows are therefore split by group, never by row, or by time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

Mask = npt.NDArray[np.bool_]

FEATURES = ("text", "prompt_tokens", "tenant", "time")
"""What is known of a request at arrival, and may be learned from."""
OUTPUTS = (
    *("length", "output_tokens", "response_tokens_est", "response_len_chars", "token_len", "true_output_tokens"),
    *("capped", "made_tokens", "finish_reason", "state", "first_token", "last_token", "ended", "scheduled", "freed"),
)
"""What is known only when the answer is there."""


class Leak(ValueError):
    """Training would see what it is tested on."""


def prompt_key(text: str) -> str:
    """Equal for prompts that differ in case, blanks and punctuation only."""
    return re.sub(r"[\W_]+", " ", text.lower()).strip() or text.strip()


def conversation_key(text: str) -> str:
    """Equal for the turns of one conversation: a later turn quotes the earlier answers."""
    return prompt_key(re.split(r"\n\s*Assistant:", text, maxsplit=1)[0])


def groups_of(rows: pd.DataFrame, by: str = "conversation") -> npt.NDArray[np.int64]:
    """A number for each row, equal within a group: by="conversation" or "prompt". A row without text stands alone."""
    keys = {"conversation": conversation_key, "prompt": prompt_key}
    if by not in keys:
        raise ValueError(f"split by {by!r}: expected one of {', '.join(keys)}")
    named = [f"row {i}" if text is None else "text " + keys[by](text) for i, text in enumerate(rows.text)]
    return pd.factorize(np.array(named, dtype=object))[0].astype(np.int64)


def held_out(groups: npt.NDArray[np.int64], share: float, seed: int) -> Mask:
    """True for the rows of a random `share` of the groups, at least one."""
    names = np.unique(groups)
    chosen = np.random.default_rng(seed).permutation(names)[: max(1, round(share * len(names)))]
    return np.isin(groups, chosen)


def split_by_prompt(
    rows: pd.DataFrame, test: float = 0.2, seed: int = 0, by: str = "conversation"
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Training and test rows, all rows of a group on the same side."""
    out = held_out(groups_of(rows, by), test, seed)
    return rows[~out].reset_index(drop=True), rows[out].reset_index(drop=True)


def split_by_time(rows: pd.DataFrame, test: float = 0.2) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The last `test` of the rows by arrival, without prompts that were in training too."""
    if rows.arrival.nunique() < 2:
        raise ValueError("split by time: the rows have no arrivals; split them by prompt")
    ordered = rows.sort_values("arrival", kind="stable")
    cut = round(len(ordered) * (1 - test))
    seen = {prompt_key(text) for text in ordered.text[:cut] if text is not None}
    fresh = [text is None or prompt_key(text) not in seen for text in ordered.text[cut:]]
    return ordered[:cut].reset_index(drop=True), ordered[cut:][fresh].reset_index(drop=True)


def check_split(train: pd.DataFrame, test: pd.DataFrame) -> None:
    """Raises Leak if a prompt stands on both sides, as it is or in another spelling."""
    seen = {prompt_key(text) for text in train.text if text is not None}
    both = [text for text in test.text if text is not None and prompt_key(text) in seen]
    if both:
        raise Leak(
            f"{len(both)} of {len(test)} test rows have a prompt that is also in training, such as "
            f"{both[0][:60]!r}: split by prompt, not by row"
        )


def check_features(features: Sequence[str], known: Iterable[str] = FEATURES) -> None:
    """Raises Leak if an output is among the features, ValueError if one is unknown."""
    for name in features:
        if name in OUTPUTS:
            raise Leak(f"feature {name!r} is an output of the request: it is not known at arrival")
        if name not in known:
            raise ValueError(f"unknown feature {name!r}: expected some of {', '.join(known)}")
