"""What the device knows of each request: its tokens, how the next one is drawn, and when to stop."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from backend.api import Sampling, Work
from backend.torch_device.detokenise import Detokeniser, StopText


@dataclass(slots=True)
class Tokens:
    id: str
    ids: list[int]
    """Prompt and output so far; the worker's, while a batch with the request is open."""
    prompt: int
    sampling: Sampling
    seed: int
    forced: int | None
    text: StopText | None
    ended: bool = False

    def take(self, position: int, token: int, eos: frozenset[int]) -> bool:
        """`token` comes at `position`; True if it is the last by EOS, stop string or forced length.

        A slot wasted on a request that has ended leaves no trace but a token that nobody reads.
        """
        self.ids.append(token)
        if self.ended:
            return False
        self.ended = self._last(position + 1 - self.prompt, token, eos)
        return self.ended

    def _last(self, made: int, token: int, eos: frozenset[int]) -> bool:
        if self.forced is not None:
            return made >= self.forced
        if self.text is not None:
            self.text.push(token)
            if self.text.stopped:
                return True
        return token in eos and not self.sampling.ignore_eos


def tokens_of(work: Work, vocabulary: int, max_model_len: int, tokenizer: Any | None) -> Tokens:
    """Raises ValueError naming the request and what is wrong with it."""
    ids = _checked(work, vocabulary, max_model_len)
    sampling = work.sampling
    seed = secrets.randbits(63) if sampling.seed is None else sampling.seed
    text = None
    if sampling.stop:
        if tokenizer is None:
            raise ValueError(f"request {work.id}: stop strings need a tokenizer, and the model came without one")
        text = StopText(Detokeniser(tokenizer), sampling.stop)
    return Tokens(work.id, ids, len(ids), sampling, seed, work.forced_output_tokens, text)


def _checked(work: Work, vocabulary: int, max_model_len: int) -> list[int]:
    given: Sequence[int] | None = work.prompt_ids
    if given is None or len(given) == 0:
        raise ValueError(f"request {work.id}: a real model needs prompt_ids, at least one")
    ids = [int(i) for i in given]
    if len(ids) != work.prompt_tokens:
        raise ValueError(f"request {work.id}: {len(ids)} prompt_ids and prompt_tokens={work.prompt_tokens}")
    if len(ids) >= max_model_len:
        raise ValueError(f"request {work.id}: {len(ids)} prompt tokens leave no room in {max_model_len}")
    if not 0 <= min(ids) <= max(ids) < vocabulary:
        raise ValueError(f"request {work.id}: prompt_ids outside 0..{vocabulary - 1}: {min(ids)}..{max(ids)}")
    sampling = work.sampling
    if not (sampling.temperature >= 0 and sampling.top_k >= 0 and 0 < sampling.top_p <= 1):
        raise ValueError(f"request {work.id}: {sampling}: temperature and top_k are not negative, top_p is in (0, 1]")
    return ids
