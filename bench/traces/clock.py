"""Date and time in ISO form, exact to the nanosecond, with a time zone in all rows or in none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backend.traffic import Column
from bench.traces.kinds import Bad, Kind, Parsed, to_numpy
from bench.traffic.times import LONGEST_ARRIVAL_S

SHAPE = (
    r"^(?P<stamp>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,9})?)"
    r"(?P<zone>Z|[+-](?:[01]\d|2[0-3]):?[0-5]\d)?$"
)
MINUTE = 60 * 10**9


@dataclass(frozen=True)
class Clock(Kind):
    """Picoseconds since the earliest row.

    Zones become UTC. A time without one beside times with one is not guessed at: what the first good row has counts.
    """

    def read(self, texts: pa.Array) -> Parsed:
        nanoseconds, zoned, bad = self._split(texts)
        if not bad.all():
            bad |= zoned != zoned[~bad][0]
            nanoseconds = nanoseconds - nanoseconds[~bad].min()
        bad |= (nanoseconds < 0) | (nanoseconds > LONGEST_ARRIVAL_S * 10**9)
        return Parsed(np.where(bad, 0, nanoseconds) * 1000, bad)

    def explain(self, text: str) -> str:
        if not text.strip():
            return "empty"
        if self._split(pa.array([text]))[2][0]:
            return "not a time like 2023-11-16 18:17:03.9799600"
        return f"a time zone here but not in the first row or the reverse, or over {LONGEST_ARRIVAL_S} s away"

    def _split(self, texts: pa.Array) -> tuple[Column, Bad, Bad]:
        """Nanoseconds since 1970 in UTC, whether a zone was given, and what is no time."""
        parts = pc.extract_regex(pc.utf8_trim_whitespace(texts), SHAPE)
        stamps, zones = (pc.fill_null(pc.struct_field(parts, name), "") for name in ("stamp", "zone"))
        codes = pc.dictionary_encode(zones)
        offsets = np.array([_minutes(zone) * MINUTE for zone in codes.dictionary.to_pylist()], np.int64)
        nanoseconds, bad = _nanoseconds(pc.if_else(pc.equal(stamps, ""), "1970-01-01", stamps))
        shapeless = to_numpy(pc.is_null(parts))
        return nanoseconds - offsets[to_numpy(codes.indices)], to_numpy(pc.not_equal(zones, "")), bad | shapeless


def _minutes(zone: str) -> int:
    if zone in ("", "Z"):
        return 0
    size = 60 * int(zone[1:3]) + int(zone[-2:])
    return -size if zone[0] == "-" else size


def _nanoseconds(stamps: pa.Array) -> tuple[Column, Bad]:
    try:
        return to_numpy(_cast(stamps)), np.zeros(len(stamps), bool)
    except pa.ArrowInvalid:  # one of them is no date: find out which
        values, bad = np.zeros(len(stamps), np.int64), np.zeros(len(stamps), bool)
    for row in range(len(stamps)):
        try:
            values[row] = _cast(stamps.slice(row, 1))[0].as_py()
        except pa.ArrowInvalid:
            bad[row] = True
    return values, bad


def _cast(stamps: pa.Array) -> pa.Array:
    return pc.cast(pc.cast(stamps, pa.timestamp("ns")), pa.int64())
