"""A predictor for a machine on which nobody has trained one yet: it learns from the project's own corpus, once."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

import sklearn
from filelock import FileLock

import predictors
from backend.torch_device.cache_folder import cache_folder
from bench.learning.fitting import fitted
from bench.learning.settings import Settings, embedder_called, learned_config
from predictors.corpus import make_corpus
from predictors.store import MODEL, save

ROWS = 3_000
QUICK = {"features": ["text"], "topics": 10, "rounds": 60, "calibration": 600}
"""Seconds of training, and within 0.015 of the rank correlation that there can be. Tenants and prompt lengths of the
corpus mean nothing elsewhere."""


def corpus_model(settings: Settings) -> Path:
    """The folder of a predictor trained as `settings` say, else quickly; kept until it or its program changes."""
    config = learned_config(settings, QUICK)
    digest = hashlib.sha256(repr((config, settings.get("embedder"), ROWS, sklearn.__version__)).encode())
    for source in sorted(Path(predictors.__path__[0]).glob("*.py")):
        digest.update(source.read_bytes())
    folder = cache_folder("predictors") / digest.hexdigest()[:16]
    with FileLock(folder.with_suffix(".lock")):
        if not (folder / MODEL).exists():
            embedder = embedder_called(settings.get("embedder"))
            print("predictor.model=corpus: learns from the project's own corpus, once: some seconds", file=sys.stderr)
            rows = make_corpus(ROWS, tenants=("plain",)).rows
            draft = folder.with_suffix(".draft")
            shutil.rmtree(draft, ignore_errors=True)
            save(fitted(rows, config, embedder), draft)
            draft.rename(folder)
    return folder
