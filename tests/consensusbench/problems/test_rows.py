"""Rows of each set as problems."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from consensusbench.problems.sources import SOURCES, problem_of
from consensuspr.client.training import ProblemIds, prompt_digest
from consensuspr.client.verl.sample import row_of
from consensuspr.data import Problem
from consensuspr.errors import DataError
from tests.consensusbench.problems.conftest import dapo, gsm8k, math500


def read(name: str | None, row: dict[str, Any]) -> Problem:
    return problem_of(row, None if name is None else SOURCES[name], "rows.jsonl", 1)


def test_a_row_of_gsm8k_is_named_by_its_text() -> None:
    problem = read("gsm8k", gsm8k("How many  apples?", "1,234,567"))
    assert (problem.problem, problem.ground_truth) == ("How many  apples?", "1234567")
    assert (problem.split, problem.data_source) == ("test", "openai/gsm8k")
    assert problem.problem_id.startswith("gsm8k-test-") and len(problem.problem_id) == 27
    training = read("gsm8k-train", gsm8k("How many apples?", "7"))
    assert training.problem_id == problem.problem_id.replace("test", "train")
    assert read("gsm8k", {"question": "?", "answer": "#### -3,000.5"}).ground_truth == "-3000.5"
    aime = read("aime-2025", {"question": " How many apples?\n", "answer": "70"})
    assert aime.problem_id == problem.problem_id.replace("gsm8k-test", "aime25")


@pytest.mark.parametrize(
    ("name", "row", "wanted"),
    [
        (
            "math-500",
            math500(7, "P?", r"\frac{1}{2}"),
            Problem(
                "math500-algebra-7",
                r"\frac{1}{2}",
                data_source="HuggingFaceH4/MATH-500",
                metadata={"level": 3, "subject": "Algebra"},
            ),
        ),
        (
            "aime-2024",
            {"id": 60, "problem": "P?", "answer": "025", "url": "u", "year": "2024"},
            Problem("aime24-60", "25", metadata={"url": "u", "year": "2024"}),
        ),
        (
            "aime-2024",
            {"ID": "2024-I-1", "Problem": "P?", "Solution": "…", "Answer": " -070.0"},
            Problem("aime24-2024-I-1", "-70"),
        ),
        (
            "aime-2025",
            {"problem": "P?", "answer": "70", "id": "0"},
            Problem("aime25-0", "70", data_source="math-ai/aime25"),
        ),
    ],
)
def test_rows_of_benchmarks(name: str, row: dict[str, Any], wanted: Problem) -> None:
    source = wanted.data_source or "HuggingFaceH4/aime_2024"
    assert read(name, row) == replace(wanted, problem="P?", split="test", data_source=source)


def test_a_row_of_dapo_comes_out_of_its_prompt() -> None:
    problem = read("dapo-math-17k", dapo("9a9b6eb4-a1cb", "Find {x}.\n\nNow.", "34"))
    assert (problem.problem_id, problem.problem) == ("dapo17k-9a9b6eb4-a1cb", "Find {x}.\n\nNow.")
    assert (problem.ground_truth, problem.split) == ("34", "train")
    assert problem.data_source == "math_dapo"
    # A processed copy has its prompt as text.
    assert (
        read("dapo-math-17k", dapo("i", "", "34") | {"prompt": "Find $x$."}).problem == "Find $x$."
    )


GSM8K_PROMPT = """How many?
 Let's think step by step and output the final answer after "####"."""
MATH_PROMPT = r"How many? Let's think step by step and output the final answer within \boxed{}."
SYSTEM = {"role": "system", "content": "Be brief."}


@pytest.mark.parametrize(
    ("prompt", "more", "problem_id", "split"),
    [
        (GSM8K_PROMPT, {"extra_info": {"index": 7, "split": "train"}}, "mine/7", "train"),
        (GSM8K_PROMPT, {"extra_info": {"index": 7, "split": "test"}}, "mine/test/7", "test"),
        (MATH_PROMPT, {"extra_info": {"index": "9a9b"}}, "mine/9a9b", None),
        (MATH_PROMPT, {"extra_info": {"problem_id": "p", "split": "dev"}}, "p", None),
        ("How many?", {}, None, None),
        ("How many?", {"extra_info": None}, None, None),
    ],
)
@pytest.mark.parametrize("before", [[], [SYSTEM], [{"role": "user", "content": "Hi."}]])
def test_a_row_of_verl_has_the_id_that_the_reward_looks_up(
    prompt: str, more: dict[str, Any], problem_id: str | None, split: str | None, before: list[Any]
) -> None:
    chat = [*before, {"role": "user", "content": prompt}]
    reward = {"reward_model": {"ground_truth": 34.0, "style": "rule"}}
    row = {"prompt": chat, "data_source": "mine", **reward, **more}
    assert read(None, row) == Problem(
        problem_id or prompt_digest(chat),
        "34",
        data_source="mine",
        problem="How many?",
        split=split,
    )
    looked_up = row_of(row, "prompt").rollout("", ProblemIds(None)).problem_id
    assert looked_up == (problem_id or prompt_digest(chat))


def test_a_row_of_this_project_keeps_its_values_and_gets_the_missing_ones() -> None:
    row: dict[str, Any] = {"problem_id": "mine-1", "problem": "P?", "ground_truth": "1"}
    problem = read("aime-2024", row)
    assert (problem.data_source, problem.split) == ("HuggingFaceH4/aime_2024", "test")
    more = {"data_source": "mine", "split": "train", "solution": "…"}
    problem = read("math-500", row | more | {"nodes": [{"expressions": ["x=1"]}]})
    assert (problem.problem_id, problem.data_source, problem.split) == ("mine-1", "mine", "train")
    assert (problem.extra, len(problem.nodes)) == ({"solution": "…"}, 1)


@pytest.mark.parametrize(
    ("name", "row", "reason"),
    [
        ("gsm8k", {"question": "Q?", "answer": "7"}, "has nothing after '####': '7'"),
        ("gsm8k", {"query": "Q?", "answer": "#### 7"}, "has no question; its keys are query, ans"),
        ("gsm8k", gsm8k(" ", "7"), "the text of the problem is empty"),
        ("math-500", {"problem": "P?", "answer": ["7"]}, "must be a text or a whole number"),
        ("math-500", {"problem": "P?", "answer": " "}, "the ground truth is missing"),
        ("math-500", {"problem": 7, "answer": "7"}, "the problem must be a text, got '7'"),
        ("aime-2024", {"problem": "P?", "answer": "m+n"}, "must be a whole number, got 'm+n'"),
        ("dapo-math-17k", dapo("i", "P?", "1") | {"prompt": []}, "has no message of the user"),
        (None, {"prompt": "P?", "reward_model": {"ground_truth": ["1"]}}, "must be a string"),
        (None, {"prompt": "P?", "reward_model": {}}, "the ground truth is missing"),
        (
            None,
            {"prompt": "P?", "reward_model": {}, "extra_info": {"index": 1}},
            "names no problem without data_source",
        ),
        (
            "dapo-math-17k",
            dapo("i", "P?", "1") | {"reward_model": None},
            "has no reward_model.ground_truth or solution",
        ),
        (None, {"problem": "P?", "answer": "1"}, "reward_model; its keys are problem, answer"),
    ],
)
def test_a_bad_row_is_named_with_its_reason(
    name: str | None, row: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DataError) as caught:
        read(name, row)
    assert str(caught.value).startswith("rows.jsonl:1: ") and reason in caught.value.reason
