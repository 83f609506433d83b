"""What a prompt says about the length of its answer, as a few dozen numbers a person could have thought of.

Each is known at arrival. Where a prompt is a conversation, its last user turn is what is asked; the answers before
it tell how long this assistant's answers are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

MOST_CHARACTERS = 4000
"""Of a longer prompt, the first and the last half of so many are read; its whole length stays a feature."""

CUES = {  # words, and what they ask for
    "short": "brief briefly short concise concisely succinct just only quick quickly simple one-word single",
    "long": "detailed detail comprehensive thorough essay long elaborate in-depth extensive complete full story",
    "list": "list lists bullet enumerate outline table csv steps items",
    "format": "json xml yaml html css sql markdown latex",
    "code": "code function script program python javascript java class implement algorithm regex bash shell method",
    "explain": "explain describe discuss analyze analyse compare contrast difference why",
    "write": "write create generate compose draft design develop build make",
    "edit": "summarize summary rephrase rewrite paraphrase translate correct edit convert change modify replace fix",
    "choose": "which choose select true false following best correct",
    "calculate": "calculate compute total sum value find solve equation probability percent average",
    "how": "how",
    "what": "what",
    "who": "who when where",
    "text": "plan itinerary recipe guide tutorial proposal report speech letter email poem song blog monologue",
    "name": "name identify classify extract label rank categorize",
    "suggest": "give provide suggest recommend tell show share",
    "thanks": "thanks thank great ok okay sure good",
    "role": "imagine pretend act role you",
    "more": "more another also else again continue further",
    "negation": "not except least never without",
    "compare": "more less twice half times each every per",
    "please": "please",
}
OPENINGS = (
    "what how why who when where which write create explain describe give can could is are do does did if a an the "
    "you imagine as in design develop generate provide list please find calculate implement show i my"
)
UNITS = {  # tokens of a thing that a prompt may ask a number of
    "word": 1.3, "sentence": 22, "paragraph": 90, "line": 14, "step": 25, "item": 15, "point": 20, "example": 25,
    "page": 500, "token": 1, "character": 0.25, "bullet": 20, "idea": 20, "way": 20, "reason": 25, "tip": 20,
}  # fmt: skip
_ONE_TO_TEN = "one two three four five six seven eight nine ten"
NUMBER_WORDS = dict(zip(_ONE_TO_TEN.split(), range(1, 11), strict=True))
SIGNS = '\n?%$\\(,="`:{/*;'

_WORD = re.compile(r"[^\W\d_][\w'-]*")
_NUMBER = re.compile(r"\d[\d,]*\.?\d*")
_SENTENCE = re.compile(r"[.!?]+(?:\s|$)")
_TURN = re.compile(r"(?:^|\n)\s*(?:<\|im_start\|>)?(user|human|assistant):?\s", re.I)
_CHOICE = re.compile(r"^\s*([A-J])[.)]\s+(.*)$", re.M)
_ASKED = re.compile(rf"(\d+|{'|'.join(NUMBER_WORDS)})[- ](?:\w+ )?({'|'.join(UNITS)})s?\b", re.I)
_CUE_OF = {
    word: [place for place, words in enumerate(CUES.values()) if word in words.split()]
    for words in CUES.values()
    for word in words.split()
}

FEATURES = (
    *("characters", "words", "mean_word", "distinct_words", "sentences", "capitals", "beyond_ascii"),
    *("ends_in_question", "ends_in_stop", *(f"sign {sign!r}" for sign in SIGNS)),
    *("numbers", "distinct_numbers", "largest_number", "fractions"),
    *("turns", "all_characters", "last_answer", "mean_answer", "longest_answer", "shortest_answer", "first_turn"),
    *("choices", "choice_length", "longest_choice", "number_choices", "choice_spread", "choice_signs"),
    *("stem", "stem_words", "stem_numbers", "stem_sentences", "stem_asks", "stem_blank"),
    *(
        "asked_things",
        "asked_tokens",
        *(f"cue {name}" for name in CUES),
        *(f"opens {word}" for word in OPENINGS.split()),
    ),
)


def clipped(text: str) -> str:
    """What is read of a text; half a surrogate pair, which has no UTF-8, becomes a question mark."""
    half = MOST_CHARACTERS // 2
    read = text if len(text) <= MOST_CHARACTERS else f"{text[:half]}\n{text[-half:]}"
    return read if read.isascii() else read.encode(errors="replace").decode()


def describe(text: str) -> npt.NDArray[np.float64]:
    """The FEATURES of a prompt, finite; -1 where one does not apply. Time is bounded whatever the length."""
    read = clipped(text)
    turns = _turns(read)
    asked = turns[-1][1]
    words = [word.lower() for word in _WORD.findall(asked)]
    numbers = _NUMBER.findall(asked)
    values = (
        *_shape(asked, words),
        *_numbers(numbers),
        *_conversation(turns, len(text)),
        *_choices(asked),
        *_asked_for(asked),
        *_cues(words),
    )
    return np.fromiter(values, dtype=np.float64, count=len(FEATURES))


def _turns(text: str) -> list[tuple[bool, str]]:
    """(by the assistant, what was said), the last by the user; a text without turns is one."""
    marks = [(m.start(), m.end(), m.group(1).lower() == "assistant") for m in _TURN.finditer(text)]
    if not marks or marks[0][0] > 0:
        return [(False, text)]
    ends = [start for start, _, _ in marks[1:]] + [len(text)]
    turns = [(by, text[start:end].strip()) for (_, start, by), end in zip(marks, ends, strict=True)]
    while len(turns) > 1 and (turns[-1][0] or not turns[-1][1]):
        turns.pop()  # an assistant's turn that is opened for the answer
    return turns


def _shape(text: str, words: Sequence[str]) -> Iterator[float]:
    yield math.log1p(len(text))
    yield math.log1p(len(words))
    yield sum(map(len, words)) / (len(words) or 1)
    yield len(set(words)) / (len(words) + 1)
    yield len(_SENTENCE.findall(text))
    yield sum(map(str.isupper, text)) / (len(text) + 1)
    yield (len(text.encode()) - len(text)) / (len(text) + 1)
    end = text.rstrip()[-1:]
    yield end == "?"
    yield end == "."
    yield from (math.log1p(text.count(sign)) for sign in SIGNS)


def _numbers(numbers: Sequence[str]) -> Iterator[float]:
    yield len(numbers)
    yield len(set(numbers))
    yield max((math.log1p(_number(n)) for n in numbers), default=-1)
    yield sum("." in n for n in numbers)


def _number(digits: str) -> float:
    return float(digits.replace(",", "").rstrip(".")[:9])


def _conversation(turns: Sequence[tuple[bool, str]], characters: int) -> Iterator[float]:
    answers = [len(said) for by_assistant, said in turns if by_assistant]
    yield len(turns)
    yield math.log1p(characters)
    if answers:
        yield from map(math.log1p, (answers[-1], sum(answers) / len(answers), max(answers), min(answers)))
    else:
        yield from (-1,) * 4
    yield math.log1p(len(turns[0][1]))


def _choices(text: str) -> Iterator[float]:
    """Of a multiple-choice question: its choices, and the stem before them."""
    found = list(_CHOICE.finditer(text))
    choices = [m.group(2) for m in found]
    yield len(choices)
    if len(choices) < 2:
        yield from (-1,) * 11
        return
    lengths = [math.log1p(len(choice)) for choice in choices]
    yield sum(lengths) / len(lengths)
    yield max(lengths)
    yield sum(any(map(str.isdigit, c)) and len(_WORD.findall(c)) < 2 for c in choices) / len(choices)
    yield max(lengths) - min(lengths)
    yield sum(choice.count("\\") + choice.count("^") for choice in choices) / len(choices)
    stem = text[: found[0].start()].strip()
    yield math.log1p(len(stem))
    yield math.log1p(len(_WORD.findall(stem)))
    yield len(_NUMBER.findall(stem))
    yield len(_SENTENCE.findall(stem))
    yield stem.endswith("?")
    yield "__" in stem


def _asked_for(text: str) -> Iterator[float]:
    """How many things the prompt asks for ("three sentences"), and the tokens of the largest such wish."""
    wishes = [min(float(_count(n)), 5000) * UNITS[unit.lower()] for n, unit in _ASKED.findall(text)]
    yield len(wishes)
    yield math.log1p(max(wishes)) if wishes else -1


def _count(number: str) -> int:
    return NUMBER_WORDS[number.lower()] if number.isalpha() else int(number[:9])


def _cues(words: Sequence[str]) -> Iterator[float]:
    counts = [0] * len(CUES)
    for word in words:
        for place in _CUE_OF.get(word, ()):
            counts[place] += 1
    yield from counts
    yield from (bool(words) and words[0] == opening for opening in OPENINGS.split())
