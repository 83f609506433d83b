"""Cost of the learned predictor: fitting, predicting, loading.

    python benchmarks/predictor.py [--quick]

The rows are the project's own corpus, each prompt embedded in a long one so that it has about 600 characters, as exam
questions have: nothing outside the project is needed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile

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
    show("fit_seconds", seconds(lambda: made.append(fit(rows, LearnedConfig()))), "s", "<= 180")
    [predictor] = made
    inputs = inputs_of(rows)
    for batch, most in ((1, 5), (32, 1)):
        times = []
        for start in range(0, REPEATS * batch, batch):
            part = inputs[start : start + batch]
            times.append(seconds(lambda part=part: predictor.predict(part)) / batch)  # type: ignore[misc]
        show(
            f"predict_ms_{'alone' if batch == 1 else f'in_{batch}'}", 1e3 * statistics.median(times), "ms", f"<= {most}"
        )
    with tempfile.TemporaryDirectory() as folder:
        show("save_seconds", seconds(lambda: store.save(predictor, folder)), "s")
        show("load_seconds", seconds(lambda: store.load(folder)), "s")


def long_prompts(count: int) -> pd.DataFrame:
    """A prompt of the corpus behind nine others as its context."""
    rows = make_corpus(count).rows
    texts = list(rows.text)
    rows["text"] = ["\n".join(texts[i - k] for k in range(9, -1, -1)) for i in range(count)]
    rows["prompt_tokens"] *= 10
    return rows


if __name__ == "__main__":
    main()
