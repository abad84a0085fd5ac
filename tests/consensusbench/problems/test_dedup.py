"""Which of several problems is kept."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.problems.dedup import Deduplicator, ProblemKey, ProblemStatus
from consensuspr.data import Problem

TEST, TRAIN = "test", "train"


def judged(*problems: tuple[int, Problem], keep_leaked: bool = False) -> dict[str, ProblemStatus]:
    """Return what becomes of each problem, by source and id."""
    dedup = Deduplicator(lambda one, other: float(one) == float(other))
    seen = [ProblemKey.of(problem, source) for source, problem in problems]
    for one in seen:
        dedup.count(one)
    return {f"{one.source}{one.problem_id}": dedup.judge(one, keep_leaked) for one in seen}


def problem(name: str, text: str, answer: str = "1", split: str | None = TRAIN) -> Problem:
    return Problem(name, ground_truth=answer, problem=text, split=split)


def test_of_one_text_one_problem_is_kept() -> None:
    statuses = judged((0, problem("a", "$x+1$")), (0, problem("b", r"\(x + 1\)")))
    assert sorted(statuses.values()) == [ProblemStatus.REPEATED, ProblemStatus.WRITTEN]


def test_a_copy_of_a_row_is_a_repetition() -> None:
    dedup = Deduplicator(lambda one, other: False)
    seen = ProblemKey.of(problem("a", "x"), 0)
    for _ in range(3):
        dedup.count(seen)
    assert Counter(dedup.judge(seen) for _ in range(3)) == {
        ProblemStatus.WRITTEN: 1,
        ProblemStatus.REPEATED: 2,
    }


def test_the_source_that_was_named_first_keeps_its_problem() -> None:
    statuses = judged((1, problem("a", "x")), (0, problem("b", "x")))
    assert statuses == {"1a": ProblemStatus.REPEATED, "0b": ProblemStatus.WRITTEN}


@pytest.mark.parametrize(
    ("answers", "status"),
    [
        (("1", "2"), ProblemStatus.CONFLICTING),
        (("1", "1.0"), ProblemStatus.WRITTEN),
        (("1", "1"), ProblemStatus.WRITTEN),
    ],
)
def test_a_conflict_is_one_of_values(answers: tuple[str, str], status: ProblemStatus) -> None:
    one, other = answers
    statuses = judged((0, problem("a", "x", one)), (0, problem("b", "x", other)))
    assert status in statuses.values()
    assert (ProblemStatus.CONFLICTING in statuses.values()) is (status is ProblemStatus.CONFLICTING)


def test_all_problems_of_a_conflict_are_left_out() -> None:
    statuses = judged(*[(0, problem(f"p{n}", "x", answer)) for n, answer in enumerate("1121")])
    assert set(statuses.values()) == {ProblemStatus.CONFLICTING}


def test_a_training_problem_of_a_test_source_is_leaked() -> None:
    pair = [(0, problem("a", "Find X.")), (1, problem("b", "(Find x)", split=TEST))]
    assert judged(*pair) == {"0a": ProblemStatus.LEAKED, "1b": ProblemStatus.WRITTEN}
    assert set(judged(*pair, keep_leaked=True).values()) == {ProblemStatus.WRITTEN}


def test_a_problem_without_a_split_may_be_trained_on() -> None:
    statuses = judged((0, problem("a", "x", split=None)), (1, problem("b", "x", split=TEST)))
    assert statuses["0a"] is ProblemStatus.LEAKED


def test_a_wrong_training_answer_takes_nothing_out_of_a_benchmark() -> None:
    statuses = judged((0, problem("a", "x", "2")), (1, problem("b", "x", "1", split=TEST)))
    assert statuses == {"0a": ProblemStatus.LEAKED, "1b": ProblemStatus.WRITTEN}


def test_an_id_stands_for_one_text() -> None:
    statuses = judged((0, problem("a", "x")), (1, problem("a", "y")))
    assert statuses == {"0a": ProblemStatus.WRITTEN, "1a": ProblemStatus.SAME_ID}


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
