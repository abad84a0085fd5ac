"""Difficulty groups, and that they are the paper's on MATH-500."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from consensusbench.evaluation.scored import difficulty_of
from consensuspr.data import read_problem_rows


@pytest.mark.parametrize(
    ("metadata", "difficulty"),
    [
        ({"difficulty": "hard"}, "hard"),
        ({"difficulty": " Easy "}, "easy"),
        ({"difficulty": "medium", "level": 5}, "medium"),
        ({"difficulty": "olympiad", "level": 5}, "hard"),
        ({"level": 1}, "easy"),
        ({"level": 2}, "medium"),
        ({"level": 3.0}, "medium"),
        ({"level": "4"}, "medium"),
        ({"level": "Level 5"}, "hard"),
        ({"level": "level 1"}, "easy"),
        ({"level": 0}, None),
        ({"level": 6}, None),
        ({"level": 2.5}, None),
        ({"level": "Level ?"}, None),
        ({"level": True}, None),
        ({"level": None}, None),
        ({"level": [5]}, None),
        ({}, None),
    ],
)
def test_difficulty_is_read_from_the_metadata(
    metadata: dict[str, Any], difficulty: str | None
) -> None:
    assert difficulty_of(metadata) == difficulty


def test_the_groups_of_math_500_have_the_sizes_that_the_paper_divides_by(shared_dir: Path) -> None:
    path = shared_dir / "data/problems/math500.jsonl.gz"
    groups = Counter(
        difficulty_of(problem.metadata or row) for problem, row in read_problem_rows(path)
    )
    assert groups == {"easy": 43, "medium": 323, "hard": 134}
