"""A reward function as users write it: NCR in plain Python, Acc by verl's ``math_dapo``.

verl loads this file by its path, as ``reward.custom_reward_function.path``.  The text is
normalised by one substitution after the other and searched with ``str.find``; a hit inside a
longer number does not count.  Nodes are normalised once, when the dataset is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

_RULES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\left|\\right|\\displaystyle|\\boxed|\$|\\[()\[\],;!]|\{,\}", ""),
        (r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}", r"(\1)/(\2)"),
        (r"\\times|\\cdot|×|·", "*"),
        (r"\*\*|`", ""),
        (r"(\d),(?=\d{3}(?!\d))", r"\1"),
        (r"[−–]", "-"),
        (r"(\d\.\d*?)0+(?!\d)", r"\1"),
        (r"\s+", ""),
    )
]


def normalised(text: str) -> str:
    """Return the text as nodes are compared with it."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text.lower()


def matched(text: str, nodes: list[list[str]]) -> int:
    """Return how many nodes have an expression in a normalised text."""
    return sum(any(_holds(text, expression) for expression in node) for node in nodes)


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any],
    dataset: str,
) -> dict[str, float]:
    """Return half of Acc and half of NCR, as verl's custom reward function."""
    from verl.utils.reward_score import math_dapo  # the core's benchmark uses the rest without verl

    nodes = _nodes(dataset)[extra_info["problem_id"]]
    acc = 1.0 if math_dapo.compute_score(solution_str, ground_truth)["acc"] else 0.0
    found = matched(normalised(solution_str), nodes)
    ncr = found / len(nodes)
    return {"score": 0.5 * acc + 0.5 * ncr, "acc": acc, "ncr": ncr, "num_matched": found}


def _holds(text: str, expression: str) -> bool:
    at = text.find(expression)
    while at >= 0:
        end = at + len(expression)
        if not text[max(0, at - 1) : at].isdigit() and not text[end : end + 1].isdigit():
            return True
        at = text.find(expression, at + 1)
    return False


@lru_cache
def _nodes(dataset: str) -> dict[str, list[list[str]]]:
    """Return the patterns of each problem's nodes, equal forms included."""
    problems = map(json.loads, Path(dataset).read_text(encoding="utf-8").splitlines())
    return {
        problem["problem_id"]: [
            [normalised(text) for text in (*node["expressions"], *node["derived"])]
            for node in problem["nodes"]
        ]
        for problem in problems
    }
