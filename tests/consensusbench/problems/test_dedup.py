"""Which of several problems is kept."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.problems.dedup import Deduplicator, ProblemKey, ProblemStatus
from consensuspr.data import Problem

TEST, TRAIN = "test", "train"


def judged(*problems: tuple[int, Problem]) -> dict[str, ProblemStatus]:
    """Return what becomes of each problem, by source and id."""
    dedup = Deduplicator(lambda one, other: float(one) == float(other))
    seen = [ProblemKey.of(problem, source) for source, problem in problems]
    for one in seen:
        dedup.count(one)
    return {f"{one.source}{one.problem_id}": dedup.judge(one) for one in seen}


def problem(name: str, text: str, answer: str = "1", split: str | None = TRAIN) -> Problem:
    return Problem(name, ground_truth=answer, problem=text, split=split)


def test_a_copy_of_a_row_is_a_repetition() -> None:
    dedup = Deduplicator(lambda one, other: False)
    seen = ProblemKey.of(problem("a", "x"), 0)
    for _ in range(3):
        dedup.count(seen)
    assert Counter(dedup.judge(seen) for _ in range(3)) == {
        ProblemStatus.WRITTEN: 1,
        ProblemStatus.REPEATED: 2,
    }


W, R, C, L, S = ProblemStatus


@pytest.mark.parametrize(
    ("problems", "statuses"),
    [
        # The source that was named first keeps its problem.
        ([(1, problem("a", "$x+1$")), (0, problem("b", r"\(x + 1\)"))], [R, W]),
        # A conflict is one of values, and all of its problems are left out.
        ([(0, problem("a", "x", "1")), (1, problem("b", "x", "2"))], [C, C]),
        ([(0, problem("a", "x", "1")), (1, problem("b", "x", "1.0"))], [W, R]),
        ([(0, problem("a", "x", "1")), (1, problem("b", "x", "1"))], [W, R]),
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
def test_what_becomes_of_problems(
    problems: list[tuple[int, Problem]], statuses: list[ProblemStatus]
) -> None:
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


@given(st.lists(st.tuples(st.sampled_from("wxyz"), st.sampled_from("12")), max_size=12))
def test_each_sound_text_is_written_once(rows: list[tuple[str, str]]) -> None:
    statuses = judged(
        *[(0, problem(f"p{n}", text, answer)) for n, (text, answer) in enumerate(rows)]
    )
    written = Counter(
        rows[int(name[2:])][0]
        for name, status in statuses.items()
        if status is ProblemStatus.WRITTEN
    )
    sound = {text for text, _ in rows if len({a for t, a in rows if t == text}) == 1}
    assert written == dict.fromkeys(sound, 1)
