"""Text from ids, one at a time, never half a character."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

REPLACEMENT = "\ufffd"


class Detokeniser:
    """One request's text. Pieces join to what the tokenizer makes of all ids at once.

    A token may end inside a character; its text is held back until the next ones complete it, and `flush` gives what
    is left at the end.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []  # of the window: some whose text is out, to decode the others beside, then the others
        self._out = 0  # how many of them are out

    def push(self, token: int) -> str:
        self._ids.append(token)
        before, text = self._decode(self._ids[: self._out]), self._decode(self._ids)
        if text.endswith(REPLACEMENT) or not text.startswith(before):
            return ""
        self._ids, self._out = self._ids[self._out :], len(self._ids) - self._out
        return text[len(before) :]

    def flush(self) -> str:
        before, text = self._decode(self._ids[: self._out]), self._decode(self._ids)
        self._out = len(self._ids)
        return text[len(before) :]

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text


class StopText:
    """Text with the stop strings watched for: what could begin one is held back until it is clear."""

    def __init__(self, detokeniser: Detokeniser, stop: Sequence[str]) -> None:
        self._detokeniser, self._stop = detokeniser, [text for text in stop if text]
        self._held = ""
        self.stopped = False

    def push(self, token: int) -> str:
        """The text that is now sure; once `stopped`, what came before the stop string was the last of it."""
        return self._release(self._detokeniser.push(token), final=False)

    def flush(self) -> str:
        return self._release(self._detokeniser.flush(), final=True)

    def _release(self, piece: str, final: bool) -> str:
        if self.stopped:
            return ""
        text = self._held + piece
        found = [at for at in (text.find(stop) for stop in self._stop) if at >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        keep = 0 if final else max((_overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
