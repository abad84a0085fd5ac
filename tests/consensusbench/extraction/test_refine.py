"""Stage 3: how much an expression says, and which candidates become nodes."""

from __future__ import annotations

import time

import pytest

from consensusbench.extraction.refine import (
    PaperRefiner,
    RefineSettings,
    gives_number,
    information_of,
    is_identity,
)
from consensusbench.extraction.types import Candidate, Extraction
from consensuspr.data import Problem

# How much an expression says.


@pytest.mark.parametrize(
    ("expression", "information"),
    [
        ("252 * 2 = 504", 7.5),
        ("x = 3", 1.5),
        ("2 + 3 = 5", 3.5),
        ("30000 + 7500 = 37500", 6.5),
        (r"\frac{1}{2} \times 50 = 25", 6.0),
        ("", 0.0),
    ],
)
def test_information(expression: str, information: float) -> None:
    assert information_of(expression) == information


@pytest.mark.parametrize(
    ("expression", "identity"),
    [
        ("12 * 1 = 12", True),
        ("5 + 0 = 5", True),
        ("5 - 0 = 5", True),
        ("x^1 = x", True),
        ("12 * 10 = 120", False),
        ("11 * 2 = 22", False),
        ("x = 1", False),
        ("", False),
        ("5 = 5", True),
        ("x = x", True),
    ],
)
def test_identities(expression: str, identity: bool) -> None:
    assert is_identity(expression) is identity


@pytest.mark.parametrize(
    ("expression", "number"),
    [
        ("3 * 4 = 12", True),
        ("x = 12", True),
        ("2x + 6 = 20", True),
        (r"x = \frac{1}{2}", True),
        ("a + b = c", False),
        ("total = 12 + 6", False),
        ("so it is", False),
    ],
)
def test_whether_a_number_is_given(expression: str, number: bool) -> None:
    assert gives_number(expression) is number


# Stage 3: which candidates become nodes, and what is said of those that do not.

PROBLEM = Problem(
    "p", ground_truth="142", problem="A baker sells 12 trays; 5 + 9 = 14 rolls are on each."
)


def candidate(label: str, support: int = 5, position: float = 0.5, **more: object) -> Candidate:
    values: dict[str, object] = {
        "label": label, "type": "equation", "expressions": (label,), "derived": (),
        "support": support, "num_models": 2, "position": position, "is_final": False,
    }  # fmt: skip
    return Candidate(**(values | more))  # type: ignore[arg-type]


def refined(*candidates: Candidate, rollouts: int = 5, **settings: float) -> Extraction:
    refiner = PaperRefiner(RefineSettings(**settings))  # type: ignore[arg-type]
    return refiner.refine(PROBLEM, Extraction(candidates), rollouts)


def labels(extraction: Extraction) -> list[str]:
    return [found.label for found in extraction.candidates]


GOOD = candidate("12 * 14 = 168", position=0.3)
FINAL = candidate("168 - 26 = 142", position=0.8, is_final=True)


def test_nodes_come_in_order_of_position() -> None:
    assert labels(refined(FINAL, GOOD)) == ["12 * 14 = 168", "168 - 26 = 142"]


@pytest.mark.parametrize(
    ("bad", "reason", "detail"),
    [
        (candidate("31 + 7 = 38", support=1), "support", "reached by 1 of 5 rollouts, 2 are"),
        (candidate("a + b = c", support=2), "support", "reached by 2 of 5 rollouts, 3 are needed"),
        (candidate("5 + 9 = 14"), "restates the problem", "it stands in the text of the problem"),
        (candidate("12 * 1 = 12"), "trivial", "an operation that changes nothing"),
        (candidate("x = 3"), "not distinctive", "information 1.5, 2 are needed"),
        (candidate("12 * 14 = 168 = 8 * 21", support=3), "implied", "implies or is implied by"),
        (candidate("142 = 284 / 2", support=3, is_final=True), "restates the answer", "1 others"),
    ],
)
def test_what_is_dropped(bad: Candidate, reason: str, detail: str) -> None:
    extraction = refined(GOOD, FINAL, bad)
    assert labels(extraction) == [GOOD.label, FINAL.label]
    [dropped] = extraction.dropped
    assert (dropped.stage, dropped.reason, dropped.label) == ("refine", reason, bad.label)
    assert detail in dropped.detail


def test_only_the_wordings_that_the_problem_has_are_taken_away() -> None:
    half_known = candidate("70 / 5 = 14", expressions=("70 / 5 = 14", "5 + 9 = 14"))
    [kept] = refined(half_known).candidates
    assert kept.expressions == ("70 / 5 = 14",)


def test_the_most_informative_stay_where_there_are_too_many() -> None:
    many = [
        candidate(f"{number} * 3 = {number * 3}", position=number / 100) for number in range(20, 33)
    ]
    extraction = refined(*many, candidate("2 + 3 = 5", position=0.9))
    assert len(extraction.candidates) == 12
    assert "2 + 3 = 5" not in labels(extraction)
    assert {found.reason for found in extraction.dropped} == {"beyond the maximum"}


def test_hundreds_of_candidates_take_no_time_for_each_pair() -> None:
    sums = ["+".join(map(str, range(first, first + 9))) for first in range(1000, 1200)]
    many = [
        candidate(f"{text}={first}", derived=tuple(f"{first}={text}-{n}" for n in range(100)))
        for first, text in enumerate(sums, 9036)
    ]
    started = time.process_time()
    assert len(refined(*many).candidates) == 12
    assert time.process_time() - started < 10.0
