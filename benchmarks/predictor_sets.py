"""The sets of real prompt/length pairs that predictors are scored on; a few words about each go into the report."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from predictors.pairs import read_pairs

CAPS = {  # looked up in the histograms: from here on the answers of the models with a limit pile up
    "Mistral-7B-Instruct-v0.2": 235,
    "Phi-3-mini-4k-instruct": 235,
    "Qwen1.5-7B-Chat": 245,
}
GPTEACHER = ("gpteacher-codegen", "gpteacher-roleplay")
CONVERSATIONS = ("GPT-4 mix", "MT-bench-101")
"""Sets with conversations: split by conversation too, the stricter way."""


def load_sets(pairs: Path) -> dict[str, pd.DataFrame]:
    """Rows by name of the set, from ../shared/data/pairs."""
    arena = read_pairs(pairs / "arena_hard.jsonl.gz")
    misc = read_pairs(pairs / "misc_permissive.jsonl.gz")
    oasst = read_pairs(pairs / "oasst_model_eval.jsonl.gz")
    turns, teacher = misc[misc.source == "mt-bench-101"], misc[misc.source.isin(GPTEACHER)]
    gpt4 = [arena[arena.tenant == "gpt-4-0613"], turns, teacher, oasst[oasst.tenant == "gpt-4"]]
    sets = {
        "GPT-4 mix": pd.concat(gpt4).assign(tenant="gpt-4"),
        "MT-bench-101": turns,
        "GPTeacher": teacher,
        "GSM8K": misc[misc.source == "gsm8k-test"],
        "MMLU-Pro": read_pairs(pairs / "mmlu_pro.jsonl.gz", CAPS),
        "arena-hard": arena,
    }
    return {name: rows.reset_index(drop=True) for name, rows in sets.items()}
