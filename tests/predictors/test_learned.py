"""What the learned predictor promises, on the project's own corpus, whose best reachable score is known."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest

from predictors.baselines import Baseline, Median, PromptLength, TenantAverage, TfidfRidge
from predictors.learned import LearnedConfig
from predictors.pairs import BadRows, inputs_of
from predictors.score import score, tau_b
from predictors.split import Leak, held_out
from predictors.training import fit

QUICK = {"rounds": 40, "topics": 10, "calibration": 400}
STORY, NUMBER = "Write a story about sailing.", "Is sailing hard to learn? Answer yes or no."


def test_most_of_what_can_be_known_is_learned(learned, corpus, parts):
    test = parts[1]
    typical = dict(zip(corpus.rows.text + corpus.rows.tenant, corpus.typical, strict=True))
    best = np.array([typical[text + tenant] for text, tenant in zip(test.text, test.tenant, strict=True)])
    reachable = tau_b(best, test.length.to_numpy(dtype=float))
    expected = np.array([p.expected for p in learned.predict(inputs_of(test))])
    assert 0.7 < reachable < 0.78
    assert tau_b(expected, test.length.to_numpy(dtype=float)) > 0.9 * reachable


@pytest.mark.parametrize("baseline", [Median, PromptLength, TenantAverage, TfidfRidge])
def test_it_beats_each_baseline(learned, parts, baseline):
    train, test = parts
    ours, theirs = score(learned, test), score(Baseline("b", baseline(train), train), test)
    assert ours["tau"] > theirs["tau"] + 0.005
    assert ours["mae"] < theirs["mae"]
    assert ours["pinball"] < theirs["pinball"]


def test_upper_covers_as_often_as_it_says(parts):
    train, test = parts
    for quantile in (0.6, 0.9):
        figures = score(fit(train, LearnedConfig(quantile=quantile, **QUICK)), test, quantile)
        noise = math.sqrt(quantile * (1 - quantile) * (1 / 400 + 1 / len(test)))
        assert abs(figures["coverage"] - quantile) < 3 * noise


def test_a_rank_orders_and_a_class_gives_chances(of_each_objective, parts):
    predictor, test = of_each_objective, parts[1]
    answers = predictor.predict(inputs_of(test))
    assert score(predictor, test)["tau"] > 0.6
    for answer in answers:
        assert (answer.score is not None) == (predictor.config.objective == "rank")
        assert (answer.probabilities is not None) == (predictor.config.objective == "class")
        if answer.probabilities is not None:
            assert len(answer.probabilities) == 5
            assert sum(answer.probabilities) == pytest.approx(1)
    if predictor.config.objective == "class":
        edges = predictor.model.head.edges
        chances = np.array([a.probabilities for a in answers])
        counted = np.bincount(np.searchsorted(edges, test.length), minlength=5) / len(test)
        assert chances.mean(axis=0) == pytest.approx(counted, abs=0.05)
        assert np.mean(chances.argmax(axis=1) == np.searchsorted(edges, test.length)) > 0.5


def test_lengths_dealt_out_at_random_teach_nothing(parts):
    train, test = parts
    dealt = train.assign(length=np.random.default_rng(0).permutation(train.length.to_numpy()))
    assert abs(score(fit(dealt, LearnedConfig(**QUICK)), test)["tau"]) < 0.08


def test_many_copies_of_a_prompt_are_not_remembered(parts):
    rng = np.random.default_rng(0)
    prompts = parts[0].drop_duplicates("text").head(100)
    rows = prompts.loc[prompts.index.repeat(10)].reset_index(drop=True)
    rows["length"] = np.exp(rng.normal(5, 1, 1000)).round().astype(int) + 1
    out = held_out(np.repeat(np.arange(100), 10), 0.3, 0)
    train, test = rows[~out].reset_index(drop=True), rows[out].reset_index(drop=True)
    ours = score(fit(train, LearnedConfig(**QUICK)), test)
    median = score(Baseline("median", Median(train), train), test)
    assert ours["mae"] > 0.97 * median["mae"]
    assert abs(ours["tau"]) < 0.12


def test_cut_answers_count_as_at_least(corpus):
    """Cut at 150 tokens, a third of all lengths are hidden; their prompts are not taken for short ones."""
    whole = corpus.rows
    cut = whole.assign(length=whole.length.clip(upper=150), capped=whole.length > 150)
    known = fit(whole, LearnedConfig(**QUICK))
    told = fit(cut, LearnedConfig(**QUICK))
    deaf = fit(cut.assign(capped=False), LearnedConfig(**QUICK))
    inputs = [i for i, hidden in zip(inputs_of(whole), cut.capped, strict=True) if hidden]
    logs = {name: np.mean(np.log([p.expected for p in m.predict(inputs)])) for name, m in
            (("known", known), ("told", told), ("deaf", deaf))}  # fmt: skip
    assert logs["deaf"] < math.log(150) < logs["told"]
    assert abs(logs["told"] - logs["known"]) < 0.6 * abs(logs["deaf"] - logs["known"])


def test_the_same_rows_and_seed_make_the_same_predictor(learned, parts):
    again = fit(parts[0], LearnedConfig(**QUICK))
    inputs = inputs_of(parts[1])[:50]
    assert again.predict(inputs) == learned.predict(inputs)


def test_one_alone_and_many_at_once_are_answered_alike(of_each_objective, parts):
    inputs = inputs_of(parts[1])[:40]
    together = of_each_objective.predict(inputs)
    assert of_each_objective.predict([]) == []
    for request, answer in zip(inputs, together, strict=True):
        (alone,) = of_each_objective.predict([request])
        assert (alone.expected, alone.upper) == pytest.approx((answer.expected, answer.upper), rel=1e-3)


# what a request may be asked with


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(STORY, id="story"),
        pytest.param("", id="empty"),
        pytest.param("   \n\t ", id="blanks"),
        pytest.param("🙂🙂🙂", id="emoji"),
        pytest.param("请写一个关于帆船的故事", id="chinese"),
        pytest.param(None, id="none"),
        pytest.param("\ud800", id="half a character"),
        pytest.param("x" * 10**6, id="one word of 1 MB"),
        pytest.param("word " * 200_000, id="1 MB of words"),
        pytest.param("9" * 10**5, id="digits"),
        pytest.param("User: hi\n\nAssistant:", id="turns"),
        pytest.param("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", id="template"),
    ],
)
@pytest.mark.parametrize("tenant", ["plain", "nobody has seen"])
def test_any_text_of_anybody_is_answered_in_time(of_each_objective, ask, text, tenant):
    started = time.perf_counter()
    (answer,) = of_each_objective.predict([ask(text, tenant=tenant)])
    assert time.perf_counter() - started < 1
    assert 1 <= answer.expected <= answer.upper <= 4096
    assert math.isfinite(answer.upper)


def test_nothing_known_is_flagged_and_answered_with_what_the_tenant_usually_gets(learned, parts, ask):
    for text in (None, "", "  ", "🙂", "请写"):
        (answer,) = learned.predict([ask(text, tenant="terse")])
        assert answer.source == "fallback:learned"
        usual = parts[0][parts[0].tenant == "terse"].length
        assert answer.expected == pytest.approx(usual.median(), rel=0.1)
        assert answer.upper == pytest.approx(usual.quantile(0.9), rel=0.1)
    (known,) = learned.predict([ask(STORY)])
    assert known.source == "learned"


def test_an_unseen_tenant_gets_what_all_have_in_common(learned, ask):
    expected = {t: learned.predict([ask(STORY, tenant=t)])[0].expected for t in ("terse", "chatty", "new")}
    assert expected["terse"] < expected["new"] < expected["chatty"]


def test_answers_stay_within_what_may_be_made(of_each_objective, ask):
    for limit in (1, 2, 30):
        (answer,) = of_each_objective.predict([ask(STORY, max_tokens=limit)])
        assert (answer.expected, answer.upper) == (limit, limit)


def test_rows_without_a_text_teach_the_rest(parts, ask):
    """A trace has no prompts: the tenant is all there is, and it is not a fallback."""
    bare = fit(parts[0].assign(text=None), LearnedConfig(**QUICK))
    terse, chatty = (bare.predict([ask(None, tenant=t)])[0] for t in ("terse", "chatty"))
    assert terse.source == chatty.source == "learned"
    assert terse.expected < chatty.expected


def test_a_feature_left_out_is_not_used(parts, ask):
    blind = fit(parts[0], LearnedConfig(features=("text",), **QUICK))
    asked = [ask(STORY, tenant=t, prompt_tokens=n, arrival=a) for t, n, a in (("terse", 5, 0), ("chatty", 500, 10**16))]
    first, second = blind.predict(asked)
    assert first == second


# again, when a request outran its prediction


@pytest.mark.parametrize("text", [STORY, NUMBER, None])
@pytest.mark.parametrize("tenant", ["terse", "new"])
def test_past_its_prediction_a_request_has_always_something_left(of_each_objective, ask, text, tenant):
    made = [0, 1, 2, 5, 10, 50, 100, 500, 1000, 4000, 10**5, 10**6, 10**8]
    answers = of_each_objective.predict([ask(text, m, 10**9, tenant) for m in made])
    expected = [a.expected for a in answers]
    assert all(e >= m + 1 and math.isfinite(a.upper) and a.upper >= e
               for e, m, a in zip(expected, made, answers, strict=True))  # fmt: skip
    assert expected == sorted(expected)


def test_what_is_left_at_the_limit_is_the_limit(learned, ask):
    (answer,) = learned.predict([ask(STORY, made=4095)])
    assert (answer.expected, answer.upper) == (4096, 4096)


def test_the_new_prediction_is_the_median_of_those_that_got_as_far(learned, parts):
    """Among requests that outran their first prediction, half end before the second and nine tenths under its upper."""
    test = parts[1]
    inputs, lengths = inputs_of(test), test.length.to_numpy()
    first = [math.ceil(p.expected) for p in learned.predict(inputs)]
    longer = [(replace(i, output_tokens=f), n) for i, f, n in zip(inputs, first, lengths, strict=True) if n > f]
    second = learned.predict([i for i, _ in longer])
    assert len(longer) > 200
    assert np.mean([n <= p.expected for (_, n), p in zip(longer, second, strict=True)]) == pytest.approx(0.5, abs=0.1)
    assert np.mean([n <= p.upper for (_, n), p in zip(longer, second, strict=True)]) == pytest.approx(0.9, abs=0.06)


def test_bins_that_were_outrun_have_no_chance(fitted, ask):
    classes = fitted("class")
    edges = classes.model.head.edges
    (answer,) = classes.predict([ask(NUMBER, made=int(edges[1]))])
    assert answer.probabilities is not None
    assert answer.probabilities[:2] == (0, 0)
    assert sum(answer.probabilities) == pytest.approx(1)


# what is refused


def test_outputs_among_the_features_are_refused():
    with pytest.raises(Leak, match="response_len_chars"):
        LearnedConfig(features=("text", "response_len_chars"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"objective": "size"}, "learned.objective: 'size'"),
        ({"features": ("texts",)}, "unknown feature 'texts'"),
        ({"quantile": 1.0}, "learned.quantile: 1.0"),
        ({"bins": 2}, "learned.bins: 2"),
        ({"rounds": 0}, "learned.rounds: 0"),
    ],
)
def test_a_config_that_cannot_be_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        LearnedConfig(**given)


def test_rows_that_cannot_be_learned_from_are_refused(parts):
    rows = parts[0]
    with pytest.raises(BadRows, match="no column capped; found"):
        fit(rows.drop(columns="capped"))
    with pytest.raises(BadRows, match="99 rows are too few"):
        fit(rows.head(99))
    with pytest.raises(BadRows, match="2 different prompts are too few"):
        fit(rows.head(200).assign(text=["one", "two"] * 100))
    with pytest.raises(BadRows, match="too few to calibrate a 99"):
        fit(rows.head(300), LearnedConfig(quantile=0.999, **QUICK))
    with pytest.raises(ValueError, match="no embedder is given"):
        fit(rows, LearnedConfig(features=("text", "embedding")))
