"""A row of each set, and the problem that comes of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.problems.sources import SOURCES, answer_of, problem_of
from consensuspr.data import Problem
from consensuspr.errors import DataError
from tests.consensusbench.problems.conftest import dapo, gsm8k, math500


def read(name: str, row: dict[str, Any]) -> Problem:
    return problem_of(row, SOURCES[name], "rows.jsonl", 1)


def test_a_row_of_gsm8k() -> None:
    problem = read("gsm8k", gsm8k("How many  apples?", "1,234,567"))
    assert (problem.problem, problem.ground_truth) == ("How many  apples?", "1234567")
    assert (problem.split, problem.data_source) == ("test", "openai/gsm8k")
    assert problem.problem_id.startswith("gsm8k-test-") and len(problem.problem_id) == 27
    assert read("gsm8k-train", gsm8k("How many apples?", "7")).problem_id == (
        problem.problem_id.replace("test", "train")
    )


def test_a_row_of_math_500() -> None:
    assert read("math-500", math500(7, "Find $x$.", r"\frac{1}{2}")) == Problem(
        problem_id="math500-algebra-7",
        ground_truth=r"\frac{1}{2}",
        data_source="HuggingFaceH4/MATH-500",
        problem="Find $x$.",
        split="test",
        metadata={"level": 3, "subject": "Algebra"},
    )


@pytest.mark.parametrize(
    ("name", "row", "wanted"),
    [
        (
            "aime-2024",
            {"id": 60, "problem": "P?", "answer": "025", "url": "u", "year": "2024"},
            ("aime24-60", "25", {"url": "u", "year": "2024"}),
        ),
        (
            "aime-2024",
            {"ID": "2024-I-1", "Problem": "P?", "Solution": "…", "Answer": 25},
            ("aime24-2024-I-1", "25", {}),
        ),
        ("aime-2025", {"problem": "P?", "answer": "70", "id": "0"}, ("aime25-0", "70", {})),
    ],
)
def test_rows_of_aime(name: str, row: dict[str, Any], wanted: tuple[str, str, Any]) -> None:
    problem = read(name, row)
    assert (problem.problem_id, problem.ground_truth, problem.metadata) == wanted
    assert (problem.problem, problem.split) == ("P?", "test")


def test_aime_2025_without_ids_is_named_by_its_text() -> None:
    one = read("aime-2025", {"question": "P  q?", "answer": "70"})
    other = read("aime-2025", {"question": " P q?\n", "answer": "71"})
    assert one.problem_id == other.problem_id
    assert one.problem_id.startswith("aime25-")


def test_a_row_of_dapo_comes_out_of_its_prompt() -> None:
    problem = read("dapo-math-17k", dapo("9a9b6eb4-a1cb", "Find {x}.\n\nNow.", "34"))
    assert (problem.problem_id, problem.problem) == ("dapo17k-9a9b6eb4-a1cb", "Find {x}.\n\nNow.")
    assert (problem.ground_truth, problem.split) == ("34", "train")
    assert problem.data_source == "math_dapo"


def test_a_processed_copy_of_dapo_has_its_prompt_as_text() -> None:
    row = dapo("i", "unused", "34") | {"prompt": "Find $x$."}
    assert read("dapo-math-17k", row).problem == "Find $x$."


def test_a_row_of_this_project_keeps_what_it_says() -> None:
    row = {
        "problem_id": "mine-1",
        "data_source": "mine",
        "problem": "P?",
        "ground_truth": "1",
        "split": "train",
        "solution": "…",
        "nodes": [{"expressions": ["x=1"]}],
    }
    problem = read("math-500", row)
    assert (problem.problem_id, problem.data_source, problem.split) == ("mine-1", "mine", "train")
    assert (problem.extra, len(problem.nodes)) == ({"solution": "…"}, 1)


def test_a_row_of_this_project_gets_what_it_lacks() -> None:
    problem = read("aime-2024", {"problem_id": "a", "problem": "P?", "ground_truth": "1"})
    assert (problem.data_source, problem.split) == ("HuggingFaceH4/aime_2024", "test")


@pytest.mark.parametrize(
    ("name", "row", "reason"),
    [
        ("gsm8k", {"question": "Q?", "answer": "7"}, "has nothing after '####': '7'"),
        ("gsm8k", {"question": "Q?", "answer": "#### "}, "has nothing after '####'"),
        ("gsm8k", {"query": "Q?", "answer": "#### 7"}, "has no question; its keys are query, ans"),
        ("gsm8k", gsm8k(" ", "7"), "the text of the problem is empty"),
        ("math-500", {"problem": "P?", "answer": ["7"]}, "must be a text or a whole number"),
        ("math-500", {"problem": "P?", "answer": True}, "must be a text or a whole number"),
        ("math-500", {"problem": "P?", "answer": " "}, "the ground truth is missing"),
        ("math-500", {"problem": 7, "answer": "7"}, "the problem must be a text, got '7'"),
        ("aime-2024", {"problem": "P?", "answer": "m+n"}, "must be a whole number, got 'm+n'"),
        ("dapo-math-17k", dapo("i", "P?", "1") | {"prompt": []}, "one message of a user, got 0"),
        (
            "dapo-math-17k",
            dapo("i", "P?", "1") | {"reward_model": None},
            "has no reward_model.ground_truth or solution",
        ),
        ("math-500", {"problem_id": "a", "problem": "P?"}, "the ground truth is missing"),
        ("math-500", {"problem_id": 7, "problem": "P?"}, "problem_id must be a string"),
    ],
)
def test_a_bad_row_is_named_with_its_reason(name: str, row: dict[str, Any], reason: str) -> None:
    with pytest.raises(DataError) as caught:
        read(name, row)
    assert str(caught.value).startswith("rows.jsonl:1: ") and reason in caught.value.reason


def test_an_unknown_set_has_rows_of_this_project_only() -> None:
    with pytest.raises(DataError, match="has no problem_id; its keys are problem, answer"):
        problem_of({"problem": "P?", "answer": "1"}, None, "rows.jsonl", 1)


@pytest.mark.parametrize(
    ("value", "how", "wanted"),
    [
        ("so 1 #### 2 #### -3,000.5", "after ####", "-3000.5"),
        ("#### 1,23", "after ####", "1,23"),
        ("007", "whole number", "7"),
        (" -070.0", "whole number", "-70"),
        (809, "whole number", "809"),
        (r" \frac{1}{2} ", "as written", r"\frac{1}{2}"),
    ],
)
def test_answers(value: Any, how: Any, wanted: str) -> None:
    assert answer_of(value, how) == wanted


@given(st.text(min_size=1, max_size=30).filter(lambda text: bool(text.strip())), st.integers(0, 99))
def test_an_id_comes_from_the_text_and_not_from_the_place(text: str, line: int) -> None:
    row = gsm8k(text, "1")
    one = problem_of(row, SOURCES["gsm8k"], "a.jsonl", line)
    spaced = row | {"question": f"\n{text}  "}
    other = problem_of(spaced, SOURCES["gsm8k"], "b.jsonl", line + 1)
    assert one.problem_id == other.problem_id


@pytest.mark.parametrize("own", ["a b/ç:d", "x" * 500, "../../etc", "\n"])
def test_an_odd_id_of_a_set_makes_a_plain_one(own: str) -> None:
    problem_id = read("dapo-math-17k", dapo(own, "P?", "1")).problem_id
    assert problem_id.startswith("dapo17k-") and len(problem_id) < 300
    assert not set(problem_id) & set(" /\n")
