"""The choice of the model that is asked next."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.sampling.plan import Draw, DrawResult, ProblemPlan

RIGHT, WRONG, REFUSED, LOST = DrawResult


def play(plan: ProblemPlan, result: Callable[[Draw], DrawResult]) -> list[Draw]:
    """Make rounds of draws to the end."""
    made: list[Draw] = []
    while draws := plan.next_draws():
        for draw in draws:
            plan.settle(draw, result(draw))
        made += draws
    return made


def shares(made: list[Draw]) -> dict[int, int]:
    return dict(Counter(draw.model for draw in made))


@pytest.mark.parametrize(
    ("plan", "bad", "expected"),
    [
        # Good models take turns.
        (ProblemPlan(1, 10, 5, 0), None, {0: 5}),
        (ProblemPlan(2, 10, 5, 1), None, {0: 2, 1: 3}),
        (ProblemPlan(3, 10, 5, 2), None, {0: 2, 1: 1, 2: 2}),
        (ProblemPlan(7, 10, 5, 5), None, {5: 1, 6: 1, 0: 1, 1: 1, 2: 1}),
        # One that fails gives way, and the others fill up.
        (ProblemPlan(2, 10, 5), 1, {0: 5, 1: 2}),
        # It is asked again where the others cannot fill up.
        (ProblemPlan(2, 4, 6), 1, {0: 4, 1: 4}),
    ],
)
def test_models_share_the_draws(
    plan: ProblemPlan, bad: int | None, expected: dict[int, int]
) -> None:
    made = play(plan, lambda draw: WRONG if draw.model == bad else RIGHT)
    assert shares(made) == expected


def test_a_refusal_and_a_loss_end_a_models_part() -> None:
    refused = ProblemPlan(2, 10, 4)
    assert shares(play(refused, lambda draw: REFUSED if draw.model else RIGHT)) == {0: 4, 1: 2}
    assert not refused.is_short
    lost = ProblemPlan(1, 10, 4)
    play(lost, lambda draw: LOST if draw.index == 2 else RIGHT)
    # What was in flight with the lost one came in; a later run brings the rest.
    assert lost.is_short


def test_a_plan_goes_on_where_an_earlier_run_stopped() -> None:
    plan = ProblemPlan(1, 10, 3)
    for index, result in ((0, RIGHT), (3, WRONG), (4, RIGHT)):
        plan.settle(Draw(0, index), result)
    # The numbers that a kill lost are used again.
    assert play(plan, lambda _: RIGHT) == [Draw(0, 1)]


@given(
    models=st.integers(1, 4),
    attempts_each=st.integers(1, 6),
    target=st.none() | st.integers(1, 8),
    turn=st.integers(0, 2**32),
    seed=st.integers(0, 2**32),
    odds=st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 1), st.integers(0, 1)),
)
def test_a_plan_draws_enough_and_never_too_much(
    models: int,
    attempts_each: int,
    target: int | None,
    turn: int,
    seed: int,
    odds: tuple[int, int, int, int],
) -> None:
    chance = random.Random(seed)
    weights = odds if any(odds) else (1, 0, 0, 0)
    plan = ProblemPlan(models, attempts_each, target, turn)
    made: list[Draw] = []
    out: set[int] = set()
    correct = 0
    while draws := plan.next_draws():
        assert target is None or correct + len(draws) <= target
        assert not out & {draw.model for draw in draws}
        made += draws
        for draw in draws:
            [result] = chance.choices((RIGHT, WRONG, REFUSED, LOST), weights)
            plan.settle(draw, result)
            correct += result is RIGHT
            if result in (REFUSED, LOST):
                out.add(draw.model)
    assert len(made) == len(set(made))
    used = Counter(draw.model for draw in made)
    assert all(count <= attempts_each for count in used.values())
    assert all(draw.index < attempts_each for draw in made)
    if target is None or correct < target:
        # All that could be tried was tried.
        assert all(model in out or used[model] == attempts_each for model in range(models))
    else:
        assert correct == target and not plan.is_short
