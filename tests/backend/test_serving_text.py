"""Text goes out with the token that completes it, and what is held back with the last one."""

from __future__ import annotations

import asyncio
import codecs
from itertools import count

from backend.costs import ConstantCost
from backend.realtime import RealTimeDevice
from serving_by_hand import server, within

TEXT = "🙂🙂 日本語 é"
BYTES = TEXT.encode()


class Bytes:
    """UTF-8, one byte a token."""

    def __init__(self):
        self._codec = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token):
        return self._codec.decode(bytes([token]))

    def flush(self):
        return self._codec.decode(b"", final=True)


class Speaks(RealTimeDevice):
    """Says TEXT to everybody, each from its beginning."""

    def __init__(self):
        super().__init__(ConstantCost(2), num_blocks=100, max_model_len=512)
        self._said = {}

    def decoder(self, sampling):
        return Bytes()

    def _tokens(self, batch):
        made = super()._tokens(batch)
        return {name: BYTES[next(self._said.setdefault(name, count()))] for name in made}


def answers(*limits):
    async def answer(engine, limit):
        return [piece async for piece in engine.generate([1], limit)]

    async def main():
        async with server(Speaks(), max_num_seqs=8) as engine:
            return await asyncio.gather(*(answer(engine, limit) for limit in limits))

    return within(20, main())


def test_pieces_join_to_the_text_and_no_character_is_halved():
    for pieces in answers(len(BYTES), len(BYTES), len(BYTES)):
        assert bytes(piece.token for piece in pieces) == BYTES
        assert "".join(piece.text for piece in pieces) == TEXT
        assert [piece.text for piece in pieces[:8]] == ["", "", "", "🙂", "", "", "", "🙂"]


def test_what_is_held_back_comes_with_the_last_token():
    [pieces] = answers(6)
    assert [piece.text for piece in pieces] == ["", "", "", "🙂", "", "\ufffd"]
    assert pieces[-1].finish_reason == "length"
