"""Cost of the learned predictor: fitting, predicting, loading.

    python benchmarks/predictor.py [--quick]

The rows are the project's own corpus, each prompt embedded in a long one so that it has about 600 characters, as exam
questions have: nothing outside the project is needed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
from figures import calibration, seconds, show

from predictors import store
from predictors.corpus import make_corpus
from predictors.learned import LearnedConfig, LearnedPredictor
from predictors.pairs import inputs_of
from predictors.training import fit

ROWS, QUICK_ROWS = 70_000, 3_000
REPEATS = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    show("calibration", calibration(), "turns/s")
    rows = long_prompts(QUICK_ROWS if quick else ROWS)
    made: list[LearnedPredictor] = []
    took, cpu = both_clocks(lambda: made.append(fit(rows, LearnedConfig())))
    show("fit_seconds", took, "s", "<= 180")
    show("fit_cpu_seconds", cpu, "s", "<= 360")  # of two cores
    [predictor] = made
    inputs = inputs_of(rows)
    for batch, most in ((1, 5), (32, 1)):
        parts = [inputs[start : start + batch] for start in range(0, REPEATS * batch, batch)]
        took, cpu = np.median([both_clocks(partial(predictor.predict, part)) for part in parts], axis=0)
        name = "alone" if batch == 1 else f"in_{batch}"
        show(f"predict_ms_{name}", 1e3 * took / batch, "ms", f"<= {most}")
        show(f"predict_cpu_ms_{name}", 1e3 * cpu / batch, "ms")  # threads that wait for work included
    with tempfile.TemporaryDirectory() as folder:
        show("save_seconds", seconds(lambda: store.save(predictor, folder)), "s")
        show("load_seconds", seconds(lambda: store.load(folder)), "s")


def both_clocks(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the wall, and of all threads of this process: it tells more where others use the machine too."""
    started = time.process_time()
    took = seconds(work)
    return took, time.process_time() - started


def long_prompts(count: int) -> pd.DataFrame:
    """A prompt of the corpus behind nine others as its context."""
    rows = make_corpus(count).rows
    texts = list(rows.text)
    rows["text"] = ["\n".join(texts[i - k] for k in range(9, -1, -1)) for i in range(count)]
    rows["prompt_tokens"] *= 10
    return rows


if __name__ == "__main__":
    main()
