"""From text cells to values, whole columns at a time: what is allowed, and why a text is not.

Times become integer picoseconds by their digits, never through a float.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from backend.traffic import NONE, Column
from bench.traffic.times import LONGEST_ARRIVAL_S, LONGEST_SPAN_S

Bad = npt.NDArray[np.bool_]
MOST_TOKENS = 2**31 - 1


class Parsed(NamedTuple):
    values: npt.NDArray[Any]  # (n,) anything where bad
    bad: Bad


class Kind(ABC):
    @abstractmethod
    def read(self, texts: pa.Array) -> Parsed: ...

    @abstractmethod
    def explain(self, text: str) -> str:
        """Why a bad text is bad."""


@dataclass(frozen=True)
class Whole(Kind):
    """A whole number, also as "12.0"; with `blank` a cell may be empty, which gives NONE."""

    least: int
    blank: bool = False

    def read(self, texts: pa.Array) -> Parsed:
        texts = pc.utf8_trim_whitespace(texts)
        good = pc.match_substring_regex(texts, r"^-?\d{1,10}(\.0*)?$")
        digits = pc.replace_substring_regex(pc.if_else(good, texts, "0"), r"\.0*$", "")
        values = to_numpy(pc.cast(digits, pa.int64()))
        bad = ~to_numpy(good) | (values < self.least) | (values > MOST_TOKENS)
        if self.blank:
            empty = to_numpy(pc.equal(texts, ""))
            return Parsed(np.where(empty, NONE, values), bad & ~empty)
        return Parsed(values, bad)

    def explain(self, text: str) -> str:
        if not text.strip():
            return "empty"
        if not re.fullmatch(r"-?\d+(\.0*)?", text.strip()):
            return "not a whole number"
        return f"below {self.least}" if int(text.partition(".")[0]) < self.least else f"above {MOST_TOKENS}"


@dataclass(frozen=True)
class Text(Kind):
    blank: bool = False
    unique: bool = False

    def read(self, texts: pa.Array) -> Parsed:
        values = texts.to_numpy(zero_copy_only=False)
        bad = np.zeros(len(values), bool) if self.blank else to_numpy(pc.equal(texts, ""))
        return Parsed(values, bad | pd.Series(values).duplicated().to_numpy() if self.unique else bad)

    def explain(self, text: str) -> str:
        return "used before" if text else "empty"


@dataclass(frozen=True)
class Offset(Kind):
    """A point in time as a decimal number of seconds (`places` 12) or milliseconds (9) since whenever."""

    places: int = 12

    def read(self, texts: pa.Array) -> Parsed:
        whole, part, bad = _decimal(texts, self.places)
        whole -= whole[~bad].min() if not bad.all() else 0
        bad |= whole > LONGEST_ARRIVAL_S * 10 ** (12 - self.places)
        return Parsed(np.where(bad, 0, whole) * 10**self.places + part, bad)

    def explain(self, text: str) -> str:
        if not text.strip():
            return "empty"
        if _decimal(pa.array([text]), self.places)[2][0]:
            return "not a number >= 0"
        return f"over {LONGEST_ARRIVAL_S} s after the first row"


@dataclass(frozen=True)
class Span(Kind):
    """A length of time in seconds; an empty cell gives NONE."""

    def read(self, texts: pa.Array) -> Parsed:
        whole, part, bad = _decimal(texts, 12)
        bad |= whole > LONGEST_SPAN_S
        empty = to_numpy(pc.equal(texts, ""))
        return Parsed(np.where(empty, NONE, np.where(bad, 0, whole) * 10**12 + part), bad & ~empty)

    def explain(self, text: str) -> str:
        return f"not a number of seconds between 0 and {LONGEST_SPAN_S}"


@dataclass(frozen=True)
class Positive(Kind):
    """A number > 0, as a float."""

    def read(self, texts: pa.Array) -> Parsed:
        values = pd.to_numeric(pd.Series(texts.to_pylist()), errors="coerce").to_numpy(np.float64)
        return Parsed(values, ~((values > 0) & np.isfinite(values)))

    def explain(self, text: str) -> str:
        return "not a number > 0"


def _decimal(texts: pa.Array, places: int) -> tuple[Column, Column, Bad]:
    """Integer part, fractional part in units of 10^-places (rounded half up), and what is not a decimal >= 0."""
    texts = pc.utf8_trim_whitespace(texts)
    if pc.any(pc.match_substring_regex(texts, r"\d[eE]")).as_py():
        texts = pa.array([_without_exponent(text) for text in texts.to_pylist()], pa.string())
    parts = pc.extract_regex(texts, r"^(?P<whole>\d{1,15})\.?(?P<part>\d*)$")
    bad = to_numpy(pc.is_null(parts))
    digits = pc.utf8_rpad(pc.fill_null(pc.struct_field(parts, "part"), ""), places + 1, "0")
    scaled = to_numpy(pc.cast(pc.utf8_slice_codeunits(digits, 0, places + 1), pa.int64()))
    whole = to_numpy(pc.cast(pc.fill_null(pc.struct_field(parts, "whole"), "0"), pa.int64()))
    return whole.copy(), (scaled + 5) // 10, bad


def _without_exponent(text: str) -> str:
    return format(Decimal(text), "f") if re.fullmatch(r"\d+(\.\d*)?[eE][+-]?\d{1,2}", text) else text


def to_numpy(array: pa.Array) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values
