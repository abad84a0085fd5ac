"""Which of several problems is kept."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.problems.dedup import Fate, ProblemCensus, sighting
from consensuspr.data import Problem

TEST, TRAIN = "test", "train"


def judged(*problems: tuple[int, Problem], keep_leaked: bool = False) -> dict[str, Fate]:
    """Return what becomes of each problem, by source and id."""
    census = ProblemCensus(lambda one, other: float(one) == float(other))
    seen = [sighting(problem, source) for source, problem in problems]
    for one in seen:
        census.count(one)
    return {f"{one.source}{one.problem_id}": census.judge(one, keep_leaked) for one in seen}


def problem(name: str, text: str, answer: str = "1", split: str | None = TRAIN) -> Problem:
    return Problem(name, ground_truth=answer, problem=text, split=split)


def test_of_one_text_one_problem_is_kept() -> None:
    fates = judged((0, problem("a", "$x+1$")), (0, problem("b", r"\(x + 1\)")))
    assert sorted(fates.values()) == [Fate.REPEATED, Fate.WRITTEN]


def test_a_copy_of_a_row_is_a_repetition() -> None:
    census = ProblemCensus(lambda one, other: False)
    seen = sighting(problem("a", "x"), 0)
    for _ in range(3):
        census.count(seen)
    assert Counter(census.judge(seen) for _ in range(3)) == {Fate.WRITTEN: 1, Fate.REPEATED: 2}


def test_the_source_that_was_named_first_keeps_its_problem() -> None:
    fates = judged((1, problem("a", "x")), (0, problem("b", "x")))
    assert fates == {"1a": Fate.REPEATED, "0b": Fate.WRITTEN}


@pytest.mark.parametrize(
    ("answers", "fate"),
    [(("1", "2"), Fate.CONFLICTING), (("1", "1.0"), Fate.WRITTEN), (("1", "1"), Fate.WRITTEN)],
)
def test_a_conflict_is_one_of_values(answers: tuple[str, str], fate: Fate) -> None:
    one, other = answers
    fates = judged((0, problem("a", "x", one)), (0, problem("b", "x", other)))
    assert fate in fates.values()
    assert (Fate.CONFLICTING in fates.values()) is (fate is Fate.CONFLICTING)


def test_all_problems_of_a_conflict_are_left_out() -> None:
    fates = judged(*[(0, problem(f"p{n}", "x", answer)) for n, answer in enumerate("1121")])
    assert set(fates.values()) == {Fate.CONFLICTING}


def test_a_training_problem_of_a_test_source_is_leaked() -> None:
    pair = [(0, problem("a", "Find X.")), (1, problem("b", "(Find x)", split=TEST))]
    assert judged(*pair) == {"0a": Fate.LEAKED, "1b": Fate.WRITTEN}
    assert set(judged(*pair, keep_leaked=True).values()) == {Fate.WRITTEN}


def test_a_problem_without_a_split_may_be_trained_on() -> None:
    fates = judged((0, problem("a", "x", split=None)), (1, problem("b", "x", split=TEST)))
    assert fates["0a"] is Fate.LEAKED


def test_a_wrong_training_answer_takes_nothing_out_of_a_benchmark() -> None:
    fates = judged((0, problem("a", "x", "2")), (1, problem("b", "x", "1", split=TEST)))
    assert fates == {"0a": Fate.LEAKED, "1b": Fate.WRITTEN}


def test_an_id_stands_for_one_text() -> None:
    fates = judged((0, problem("a", "x")), (1, problem("a", "y")))
    assert fates == {"0a": Fate.WRITTEN, "1a": Fate.SAME_ID}


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
    fates = judged(*[(0, problem(f"p{n}", text, answer)) for n, (text, answer) in enumerate(rows)])
    written = Counter(
        rows[int(name[2:])][0] for name, fate in fates.items() if fate is Fate.WRITTEN
    )
    sound = {text for text, _ in rows if len({a for t, a in rows if t == text}) == 1}
    assert written == dict.fromkeys(sound, 1)
