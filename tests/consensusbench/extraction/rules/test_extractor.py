"""Extraction by rules on invented problems: what becomes a candidate, and with which words."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.extraction import CorrectRollout, Extraction
from consensusbench.extraction.rules import RulesExtractor, RulesSettings
from consensuspr.core import Matcher
from consensuspr.data import Problem
from consensuspr.errors import InputError

BAKERY = Problem(
    "bakery",
    ground_truth="142",
    problem="A baker sells 12 trays of 14 rolls. He gives away 26 rolls. How many are left?",
)
SOLUTIONS = (
    ("ada", "12 * 14 = 168 rolls. Then 168 - 26 = 142. Answer: 142"),
    ("ada", r"He bakes \(14 \times 12 = 168\) rolls, and \(168 - 26 = 142\) are left."),
    ("bob", "12 trays of 14 are 168 rolls. So 168 - 26 = 142."),
    ("bob", "Total = 12*14 = 168. x = 142"),
    ("cem", "10 * 14 = 140, 2 * 14 = 28, 140 + 28 = 168; 168 - 26 = 142."),
)


def rollouts(solutions: Sequence[tuple[str, str]]) -> list[CorrectRollout]:
    return [
        CorrectRollout(f"r{number}", model, text) for number, (model, text) in enumerate(solutions)
    ]


def extract(
    solutions: Sequence[tuple[str, str]], problem: Problem = BAKERY, **settings: int | bool
) -> Extraction:
    return RulesExtractor(RulesSettings(**settings)).extract(problem, rollouts(solutions))  # type: ignore[arg-type]


def test_shared_conclusions_become_candidates_in_order() -> None:
    bakes, left = extract(SOLUTIONS).candidates
    assert (bakes.label, bakes.support, bakes.num_models, bakes.is_final) == (
        "12 * 14 = 168", 5, 3, False,
    )  # fmt: skip
    assert (left.label, left.support, left.num_models, left.is_final) == (
        "168 - 26 = 142", 5, 3, True,
    )  # fmt: skip
    assert bakes.position < left.position
    assert bakes.type == left.type == "equation"


def test_what_the_problem_says_itself_supports_nothing() -> None:
    problem = Problem("echo", ground_truth="142", problem="Show that 150 - 8 = 142.")
    solutions = [
        ("ada", "168 - 26 = 142, done."),
        ("bob", "So 168 - 26 = 142, as was to be shown."),
        ("cem", "168-26=142."),
        ("ada", "Indeed 150 - 8 = 142."),
        ("bob", "It is plain that 150 - 8 = 142!"),
    ]
    [left] = extract(solutions, problem).candidates
    assert (left.label, left.support) == ("168 - 26 = 142", 3)
    assert not Matcher([[*left.expressions, *left.derived]]).match(problem.problem)[0]


def test_wordings_are_those_that_were_seen() -> None:
    bakes, left = extract(SOLUTIONS).candidates
    assert {"12 * 14 = 168", "140 + 28 = 168", "168 rolls"} <= set(bakes.expressions)
    assert "x = 142" in left.expressions
    every = Matcher([[*bakes.expressions, *bakes.derived]])
    assert every.match(r"14 \times 12 = 168") == [True]


def test_what_too_few_rollouts_state_is_dropped_with_its_reason() -> None:
    dropped = {one.label: one for one in extract(SOLUTIONS).dropped}
    assert dropped["10 * 14 = 140"].reason == "unsupported"
    assert dropped["10 * 14 = 140"].detail == "stated by 1 of the rollouts, 2 are needed"


def test_what_one_model_alone_writes_is_its_style() -> None:
    solutions = [*SOLUTIONS[:4], ("ada", "7 * 24 = 168"), ("ada", "5 + 9 = 14, 12 * 14 = 168")]
    solutions += [("ada", "5 + 9 = 14 and 12*14=168")]
    assert "few models" in {one.reason for one in extract(solutions).dropped}
    assert "5 + 9 = 14" in [one.label for one in extract(solutions, min_models=1).candidates]


def test_one_model_alone_is_enough_where_there_is_no_other() -> None:
    solutions = [("ada", text) for _, text in SOLUTIONS]
    assert [one.num_models for one in extract(solutions).candidates] == [1, 1]


def test_phrases_are_wordings_only_where_they_are_wanted() -> None:
    plain = extract(SOLUTIONS, phrases=False).candidates[0]
    assert "168 rolls" not in plain.expressions
    assert plain.support == 4  # one solution says it in words


def test_numbers_of_the_problem_are_no_conclusion() -> None:
    problem = Problem("p", problem="A town of 12500 people", ground_truth="3")
    told = [("ada", "There are 12500 people."), ("bob", "12500 people live there.")]
    assert extract(told, problem).candidates == ()
    other = Problem("p", problem="A town", ground_truth="3")
    [value] = extract(told, other).candidates
    assert (value.type, value.label) == ("value", "12500")


def test_without_rollouts_there_is_nothing() -> None:
    assert extract([]) == Extraction(())


def test_it_travels_to_workers() -> None:
    extractor = RulesExtractor(RulesSettings(min_support=3))
    assert pickle.loads(pickle.dumps(extractor)) == extractor


@pytest.mark.parametrize("name", ["min_support", "max_candidates", "max_forms"])
def test_thresholds_below_one_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} must be at least 1, got 0"):
        RulesSettings(**{name: 0})  # type: ignore[arg-type]


STATEMENTS = st.sampled_from(
    ["3*4=12", "4*3 = 12", "12-5=7", "x=7", "a+b=c", "2+2=5", "7 apples", "1250", "n<9", "so", "="]
)
TEXTS = st.lists(STATEMENTS, max_size=8).map(". ".join)


@given(st.lists(st.tuples(st.sampled_from(["ada", "bob"]), TEXTS), max_size=6))
def test_candidates_are_what_rollouts_say(solutions: list[tuple[str, str]]) -> None:
    extraction = extract(solutions)
    assert extraction == extract(solutions)
    for one in extraction.candidates:
        matcher = Matcher([[*one.expressions, *one.derived]])
        reached = [index for index, (_, text) in enumerate(solutions) if matcher.match(text)[0]]
        assert len(reached) == one.support >= 2
        assert one.label == one.expressions[0]
        assert len(one.expressions) + len(one.derived) <= 128
        assert "2+2=5" not in one.expressions
