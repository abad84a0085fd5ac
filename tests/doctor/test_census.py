"""Ids that stand for two things."""

from __future__ import annotations

from consensuspr.doctor.dataset_checks import Census, Side


def test_problems_are_new_once_on_each_side() -> None:
    census = Census()
    assert census.note(Side.TRAIN, "a", "p", "1", "t row 1")
    assert not census.note(Side.TRAIN, "a", "p", "1", "t row 2")
    assert census.note(Side.TRAIN, "b", "q", None, "t row 3")
    assert census.note(Side.VALIDATION, "a", "p", "1", "v row 1")
    assert not census.note(Side.VALIDATION, "a", "p", "1", "v row 2")
    assert [census.num_problems(side) for side in Side] == [2, 1]
    assert (census.ambiguous.prompts.count, census.ambiguous.truths.count) == (0, 0)
    assert (census.ambiguous.leaked.count, census.ambiguous.leaked.first) == (1, "'a', v row 1")


def test_an_id_with_two_prompts_counts_once() -> None:
    census = Census()
    for row, prompt in enumerate(["p", "q", "r", "p"]):
        census.note(Side.TRAIN, "a", prompt, "1", f"row {row}")
    census.note(Side.VALIDATION, "b", "p", "1", "")
    assert (census.ambiguous.prompts.count, census.ambiguous.prompts.first) == (1, "'a', row 1")


def test_an_id_with_another_ground_truth_on_the_other_side() -> None:
    census = Census()
    census.note(Side.TRAIN, "a", "p", "1", "")
    census.note(Side.VALIDATION, "a", "p", "2", "v row 1")
    assert (census.ambiguous.truths.count, census.ambiguous.truths.first) == (1, "'a', v row 1")
