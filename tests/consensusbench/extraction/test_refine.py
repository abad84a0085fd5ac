"""Stage 3: how much an expression says, and which candidates become nodes."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from consensusbench.extraction.corpus import Corpus
from consensusbench.extraction.refine import (
    PaperRefiner,
    RefineSettings,
    gives_number,
    information_of,
    is_identity,
)
from consensusbench.extraction.types import Candidate, Extraction
from consensuspr.core import Matcher
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


NOTHING = Corpus()


def candidate(label: str, support: int = 5, position: float = 0.5, **more: object) -> Candidate:
    values: dict[str, object] = {
        "label": label, "type": "equation", "expressions": (label,), "derived": (),
        "support": support, "num_models": 2, "position": position, "is_final": False,
    }  # fmt: skip
    return Candidate(**(values | more))  # type: ignore[arg-type]


def refined(
    *candidates: Candidate, rollouts: int = 5, corpus: Corpus = NOTHING, **settings: float
) -> Extraction:
    refiner = PaperRefiner(RefineSettings(**settings))  # type: ignore[arg-type]
    return refiner.refine(PROBLEM, Extraction(candidates), rollouts, corpus)


def labels(extraction: Extraction) -> list[str]:
    return [found.label for found in extraction.candidates]


GOOD = candidate("12 * 14 = 168", position=0.3)
FINAL = candidate("168 - 26 = 142", position=0.8, is_final=True)


def test_nodes_come_in_order_of_position() -> None:
    assert labels(refined(FINAL, GOOD)) == ["12 * 14 = 168", "the answer is 142"]


@pytest.mark.parametrize(
    ("bad", "reason", "detail"),
    [
        (candidate("31 + 7 = 38", support=1), "support", "reached by 1 of 5 rollouts, 2 are"),
        (candidate("a + b = c", support=2), "support", "reached by 2 of 5 rollouts, 3 are needed"),
        (candidate("5 + 9 = 14"), "restates the problem", "the problem states it"),
        (candidate("12 * 1 = 12"), "trivial", "an operation that changes nothing"),
        (candidate("x = 31"), "not distinctive", "only a small number or a number of"),
        (candidate("d_1 = 31"), "not distinctive", "only a small number or a number of"),
        (candidate("1/4 + 3/4 = 1"), "not distinctive", "it gives only a small number"),
        (candidate("12 = 3 * 4"), "not distinctive", "it gives only a small number"),
        (candidate(r"-2 \equiv 5 \pmod 7"), "not distinctive", "it gives only"),
        (candidate("trays = 12"), "not distinctive", "only a small number or a number of"),
        (candidate("12 * 14 = 168 = 8 * 21", support=3), "implied", "implies or is implied by"),
        (
            candidate("142 = 284 / 2", support=3, is_final=True),
            "restates the answer",
            "the final node states it",
        ),
    ],
)
def test_what_is_dropped(bad: Candidate, reason: str, detail: str) -> None:
    extraction = refined(GOOD, FINAL, bad)
    assert labels(extraction) == [GOOD.label, "the answer is 142"]
    [dropped] = [found for found in extraction.dropped if found.label != FINAL.label]
    assert (dropped.stage, dropped.reason, dropped.label) == ("refine", reason, bad.label)
    assert detail in dropped.detail


def test_only_the_wordings_that_the_problem_has_are_taken_away() -> None:
    half_known = candidate("70 / 5 = 14", expressions=("70 / 5 = 14", "5 + 9 = 14"))
    kept, _ = refined(half_known).candidates
    assert kept.expressions == ("70 / 5 = 14",)


def test_words_of_a_model_as_label_are_no_reason_to_drop_a_node() -> None:
    named = candidate("The rolls.", expressions=("70 / 5 = 14", "5 + 9 = 14"), derived=("14=5+9",))
    kept, _ = refined(named).candidates
    assert (kept.label, kept.expressions, kept.derived) == ("The rolls.", ("70 / 5 = 14",), ())
    known = replace(named, expressions=("5 + 9 = 14",))
    assert labels(refined(known)) == ["the answer is 142"]


def test_the_late_and_well_supported_stay_where_there_are_too_many() -> None:
    many = [
        candidate(f"{number} * 3 = {number * 3}", position=number / 100) for number in range(20, 33)
    ]
    extraction = refined(*many, candidate("2 + 3 = 5", support=2, position=0.4), GOOD)
    kept = [f"{number} * 3 = {number * 3}" for number in range(26, 33)]
    assert labels(extraction) == [*kept[:4], GOOD.label, *kept[4:], "the answer is 142"]
    assert {found.reason for found in extraction.dropped} == {"beyond the maximum"}


def test_of_what_stands_in_one_chain_the_best_stays() -> None:
    chain = ((0, 3), (1, 4))
    sides = candidate("V = 6ab", chains=chain, position=0.5)
    whole = candidate("V = 216", chains=(*chain, (2, 1)), position=0.6)
    other = candidate("S = 217", chains=((0, 5),), position=0.2)
    extraction = refined(sides, whole, other)
    assert labels(extraction) == ["S = 217", "V = 216", "the answer is 142"]
    assert "stands in the chains of 'V = 216'" in extraction.dropped[0].detail


def test_the_final_node_is_the_answer_as_boxed_or_by_the_last_equation() -> None:
    early = candidate("140 + 2 = 142", is_final=True, position=0.1, num_models=1)
    assert refined(GOOD, early).candidates[-1].expressions == (r"\boxed{142}",)
    final = refined(GOOD, replace(FINAL, num_models=1)).candidates[-1]
    assert final.expressions == (r"\boxed{142}", "168 - 26 = 142")
    assert (final.is_final, final.support, final.position) == (True, 5, 1.0)
    assert final.num_models == 2
    hits = Matcher([final.expressions]).hits
    assert hits("So the answer is 142.") != [None] == hits("142 of the others")


@pytest.mark.parametrize(
    ("ground_truth", "expressions"),
    [
        ("033", (r"\boxed{033}", r"\boxed{33}")),
        ("000", (r"\boxed{000}", r"\boxed{0}")),
        ("0.5", (r"\boxed{0.5}",)),
        (r"thus \boxed{\frac12}", (r"\boxed{\frac12}",)),
        ("\ud800", ("\\boxed{\ud800}",)),
        ("x" * 300, None),  # too long for an answer
        (" ", None),
    ],
)
def test_the_final_node_of_odd_answers(
    ground_truth: str, expressions: tuple[str, ...] | None
) -> None:
    problem = replace(PROBLEM, ground_truth=ground_truth)
    made = PaperRefiner().refine(problem, Extraction((GOOD,)), 5, NOTHING).candidates
    finals = [found.expressions for found in made if found.is_final]
    assert finals == ([] if expressions is None else [expressions])


def solutions(*texts: str) -> Corpus:
    """Solutions of other problems; with many more that say nothing."""
    more = (f"there is nothing in {number}" for number in range(30))
    return Corpus.of((f"other {at}", text) for at, text in enumerate((*texts, *more)))


def test_what_many_problems_state_is_no_node() -> None:
    triangle = candidate("a + b = 180")
    assert labels(refined(triangle, corpus=solutions(*["So 180 - a = b."] * 3)))[:1] == [
        triangle.label
    ]
    extraction = refined(triangle, corpus=solutions(*["So 180 - a = b."] * 4))
    assert labels(extraction) == ["the answer is 142"]
    assert extraction.dropped[0].detail == "4 other problems state it"


def test_an_equation_is_rare_if_no_other_problem_states_it_with_any_names() -> None:
    short = candidate("p + q = 57", expressions=("p + q = 57", "x^2+3xy-2y=41"))
    [kept, _] = refined(short, corpus=solutions("a + b = 58")).candidates
    assert kept.rare == ("p + q = 57",)  # the other one is large enough for other names
    assert refined(short, corpus=solutions("so a + b = 57")).candidates[0].rare == ()
    assert refined(short).candidates[0].rare == ()  # nothing to compare with
    copy = candidate("q + r = 57", position=0.7)
    extraction = refined(short, copy, corpus=solutions("a + b = 58"))
    assert labels(extraction) == ["q + r = 57", "the answer is 142"]


def test_hundreds_of_candidates_take_no_time_for_each_pair() -> None:
    sums = ["+".join(map(str, range(first, first + 9))) for first in range(1000, 1200)]
    many = [
        candidate(f"{text}={first}", derived=tuple(f"{first}={text}-{n}" for n in range(100)))
        for first, text in enumerate(sums, 9036)
    ]
    started = time.process_time()
    assert len(refined(*many).candidates) == 9
    assert time.process_time() - started < 10.0
