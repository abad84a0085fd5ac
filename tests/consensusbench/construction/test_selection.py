"""The choice of the correct rollouts that are compared."""

from __future__ import annotations

import hashlib
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.construction.selection import (
    MAX_ROLLOUT_BYTES,
    MAX_ROLLOUTS,
    SelectionSettings,
    choose,
)
from consensusbench.construction.store import DistinctRollout


def text(model: str, number: int, num_bytes: int = 100) -> DistinctRollout:
    """Return a rollout as far as the choice sees it."""
    mark = hashlib.sha256(f"{model} {number}".encode()).digest()[:16]
    return DistinctRollout(number, mark, num_bytes, model)


def texts(**numbers: int) -> list[DistinctRollout]:
    """Return so many rollouts of each model."""
    return [text(model, number) for model, count in numbers.items() for number in range(count)]


@pytest.mark.parametrize(
    ("there", "wanted", "chosen"),
    [
        ({"a": 9, "b": 9}, 4, {"a": 2, "b": 2}),
        ({"a": 9, "b": 1, "c": 1}, 5, {"a": 3, "b": 1, "c": 1}),
        ({"a": 2, "b": 1}, 5, {"a": 2, "b": 1}),
        ({"a": 7, "b": 4}, 256, {"a": 7, "b": 4}),
    ],
)
def test_models_take_turns(there: dict[str, int], wanted: int, chosen: dict[str, int]) -> None:
    settings = SelectionSettings(rollouts_per_problem=wanted, min_rollouts=1)
    found = choose("p", texts(**there), settings)
    assert Counter(rollout.model for rollout in found) == chosen
    assert len(set(found)) == len(found)


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 20)), unique=True),
    st.integers(1, 12),
    st.randoms(use_true_random=False),
)
def test_the_choice_does_not_depend_on_the_order(
    names: list[tuple[str, int]], wanted: int, shuffler: random.Random
) -> None:
    rollouts = [text(model, number) for model, number in names]
    settings = SelectionSettings(rollouts_per_problem=wanted, min_rollouts=1)
    first = choose("p", rollouts, settings)
    shuffler.shuffle(rollouts)
    assert choose("p", rollouts, settings) == first
    assert len(first) == min(wanted, len(rollouts))
    # No model has two more than another that has one left.
    counts, there = (Counter(found.model for found in some) for some in (first, rollouts))
    left = [model for model in there if counts[model] < there[model]]
    assert all(counts[other] <= counts[model] + 1 for model in left for other in there)


def test_many_are_bounded_in_number_and_bytes() -> None:
    settings = SelectionSettings(rollouts_per_problem=MAX_ROLLOUTS)
    assert len(choose("p", texts(a=300, b=300), settings)) == MAX_ROLLOUTS
    large = [text("a", number, 1 << 20) for number in range(200)]
    assert len(choose("p", large, settings)) == MAX_ROLLOUT_BYTES >> 20
