"""A synthetic prompt corpus: something real to learn on a fresh machine, and a best reachable score that is known.

An instruction is a task, a topic and how much is wanted; each has a stated part in the log of the typical length.
Around that, lengths vary as those of real models do when the same prompt is asked again: by a heavy-tailed factor
(Student's t on the log scale) whose coefficient of variation is about 1. Nobody can foresee that part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from predictors.encoder import Floats
from predictors.pairs import TOKENS_PER_CHARACTER, frame

SECOND = 10**12
DEGREES = 5
NOISE = 0.52
"""Of the log-length, times a t with 5 degrees of freedom: a coefficient of variation of about 1."""
FEWEST, MOST = 1, 4096


class Task(NamedTuple):
    text: str
    tokens: float  # typical length
    each: float = 0.0  # more for each of the {n} things asked for


TASKS = (
    Task("Write a story about {topic}.", 520),
    Task("Write an essay on {topic} for a school magazine.", 650),
    Task("Draft an email to a colleague who asked about {topic}.", 170),
    Task("Explain {topic} to a beginner.", 260),
    Task("Explain why people disagree about {topic}.", 300),
    Task("What is {topic}?", 110),
    Task("Who first wrote about {topic}?", 45),
    Task("When did {topic} become popular?", 50),
    Task("Is {topic} hard to learn? Answer yes or no.", 4),
    Task("Name one book about {topic}.", 18),
    Task("Give a title for a talk on {topic}.", 14),
    Task("List {n} facts about {topic}.", 15, 24),
    Task("List {n} questions that a visitor may ask about {topic}.", 10, 18),
    Task("Give {n} reasons to study {topic}, with an example for each.", 20, 55),
    Task("Write {n} sentences on {topic}.", 2, 23),
    Task("Describe {topic} in {n}0 words.", 0, 13),
    Task("Write {n} paragraphs about {topic}.", 10, 95),
    Task("Make a table that compares {n} approaches to {topic}.", 60, 45),
    Task("Plan {n} lessons on {topic}, step by step.", 60, 110),
    Task("Write a Python function that simulates {topic}.", 330),
    Task("Fix the spelling: 'a short intoduction to {topic}'.", 15),
    Task("Translate into French: 'We met to talk about {topic}.'", 16),
    Task("Summarize in one sentence what matters most in {topic}.", 34),
    Task("You are a teacher of {topic}. Greet your class.", 85),
    Task("Compose a poem about {topic}.", 190),
    Task("Return a JSON object with the keys name and level for {topic}.", 38),
)
MANNERS = {  # what is added to the instruction, and to the log of the typical length
    "": 0.0,
    " Be brief.": -0.7,
    " Keep it short and simple.": -0.5,
    " Go into detail.": 0.6,
    " Be thorough and give background.": 0.75,
    " Please.": 0.0,
    " Use plain words.": -0.1,
    " Add an example.": 0.3,
}
TOPICS = (
    *("beekeeping", "sailing", "chess openings", "sourdough bread", "glaciers", "tax law", "jazz harmony", "pottery"),
    *("volcanoes", "compilers", "graph theory", "bird migration", "urban gardening", "photography", "black holes"),
    *("the tides", "fermentation", "typography", "origami", "cryptography", "coral reefs", "railway signals"),
    *("knitting", "medieval trade", "weather maps", "queueing theory", "wind turbines", "stage lighting", "old clocks"),
    *("mushrooms", "map projections", "rhetoric", "tea", "bridges", "robot arms", "sign language", "desert plants"),
)
COUNTS = (2, 3, 4, 5, 6, 8, 10, 12)
TENANTS = {"terse": -0.35, "plain": 0.0, "chatty": 0.35}
"""Who answers, and what that adds to the log of the typical length."""


@dataclass(frozen=True)
class Corpus:
    rows: pd.DataFrame  # as predictors.pairs has them
    typical: Floats  # (n,) the median length of each prompt: the best `expected` that there can be


def make_corpus(rows: int, seed: int = 0, noise: float = NOISE, tenants: Sequence[str] = tuple(TENANTS)) -> Corpus:
    """Prompts drawn at random, one arriving each second, and lengths that a model might have given them."""
    rng = np.random.default_rng(seed)
    told = [_instruction(rng) for _ in range(rows)]
    names = rng.choice(list(tenants), rows)
    logs = np.array([log for _, log in told]) + [TENANTS[name] for name in names]
    lengths = np.exp(logs + noise * rng.standard_t(DEGREES, rows))
    texts = [text for text, _ in told]
    table = frame(
        {
            "text": texts,
            "prompt_tokens": [max(1, round(len(text) * TOKENS_PER_CHARACTER)) for text in texts],
            "tenant": names,
            "arrival": np.arange(rows) * SECOND,
            "max_tokens": MOST,
            "source": "corpus",
            "length": np.clip(np.round(lengths), FEWEST, MOST).astype(np.int64),
            "capped": lengths >= MOST,
        }
    )
    return Corpus(table, np.clip(np.exp(logs), FEWEST, MOST))


def _instruction(rng: np.random.Generator) -> tuple[str, float]:
    """A prompt, and the log of its typical length."""
    task = TASKS[rng.integers(len(TASKS))]
    place, count = int(rng.integers(len(TOPICS))), COUNTS[rng.integers(len(COUNTS))]
    manner = list(MANNERS)[rng.integers(len(MANNERS))]
    text = task.text.format(topic=TOPICS[place], n=count) + manner
    return text, math.log(task.tokens + task.each * count) + MANNERS[manner] + _said_of(place)


def _said_of(topic: int) -> float:
    """Some topics have more to them: from -0.3 to 0.3, in no order."""
    return 0.6 * (topic * 0.618 % 1) - 0.3
