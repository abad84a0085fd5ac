"""Files in the shapes of the public sets, with problems of our own."""

from __future__ import annotations

from typing import Any

from consensusbench.problems.texts import with_prompt


def gsm8k(question: str, answer: str) -> dict[str, Any]:
    """A row of GSM8K, with a solution."""
    return {"question": question, "answer": f"One has <<3+4=7>>7 apples.\n#### {answer}"}


def math500(number: int, problem: str, answer: str) -> dict[str, Any]:
    """A row of MATH-500."""
    return {
        "problem": problem,
        "solution": rf"So it is $\boxed{{{answer}}}$.",
        "answer": answer,
        "subject": "Algebra",
        "level": 3,
        "unique_id": f"test/algebra/{number}.json",
    }


def dapo(index: str, problem: str, answer: str) -> dict[str, Any]:
    """A row of DAPO-Math-17k, in its prompt."""
    return {
        "data_source": "math_dapo",
        "prompt": [{"role": "user", "content": with_prompt(problem)}],
        "ability": "MATH",
        "reward_model": {"ground_truth": answer, "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": index},
    }
