"""The problem that is kept of several with one text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.problems.dedup import Deduplicator, ProblemKey, ProblemStatus
from consensuspr.data import Problem

TEST, TRAIN = "test", "train"


def judged(*problems: tuple[int, Problem]) -> dict[str, ProblemStatus]:
    """Return the status of each problem, by source and id."""
    dedup = Deduplicator(lambda first, second: float(first) == float(second))
    keys = [ProblemKey.of(problem, source) for source, problem in problems]
    for key in keys:
        dedup.count(key)
    return {f"{key.source}{key.problem_id}": dedup.judge(key) for key in keys}


def problem(name: str, text: str, answer: str = "1", split: str | None = TRAIN) -> Problem:
    return Problem(name, ground_truth=answer, problem=text, split=split)


W, R, C, L, S = ProblemStatus


@pytest.mark.parametrize(
    ("problems", "statuses"),
    [
        # The source that was named first keeps its problem.
        ([(1, problem("a", "$x+1$")), (0, problem("b", r"\(x + 1\)"))], [R, W]),
        # A conflict is one of values, and all of its problems are left out.
        ([(0, problem("a", "x", "1")), (1, problem("b", "x", "2"))], [C, C]),
        ([(0, problem("a", "x", "1")), (1, problem("b", "x", "1.0"))], [W, R]),
        ([(0, problem(f"p{n}", "x", answer)) for n, answer in enumerate("1121")], [C] * 4),
        ([(0, problem("a", "Find X.")), (1, problem("b", "(Find x)", split=TEST))], [L, W]),
        # A problem without a split may be trained on.
        ([(0, problem("a", "x", split=None)), (1, problem("b", "x", split=TEST))], [L, W]),
        # A wrong training answer takes nothing out of a benchmark.
        ([(0, problem("a", "x", "2")), (1, problem("b", "x", "1", split=TEST))], [L, W]),
        # An id stands for one text.
        ([(0, problem("a", "x")), (1, problem("a", "y"))], [W, S]),
    ],
)
def test_statuses(problems: list[tuple[int, Problem]], statuses: list[ProblemStatus]) -> None:
    assert list(judged(*problems).values()) == statuses


@given(st.data())
def test_the_order_of_rows_decides_nothing(data: st.DataObject) -> None:
    row = st.tuples(
        st.integers(0, 2),
        st.sampled_from("xyz"),
        st.sampled_from("12"),
        st.sampled_from([TEST, TRAIN]),
    )
    drawn = data.draw(st.lists(row, max_size=12))
    problems = [
        (source, problem(f"p{place}", text, answer, split))
        for place, (source, text, answer, split) in enumerate(drawn)
    ]
    shuffled = data.draw(st.permutations(problems))
    assert judged(*shuffled) == judged(*problems)
