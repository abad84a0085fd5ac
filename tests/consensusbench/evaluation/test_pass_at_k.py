"""pass@k by hand, by trying all subsets, and where it has no value."""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.evaluation.metrics import MAX_NAMED, pass_at_k, pass_at_k_estimate


def one(samples: int, right: int, k: int) -> float:
    return float(pass_at_k(np.array([samples]), np.array([right]), k)[0])


@pytest.mark.parametrize(
    ("samples", "right", "k", "value"),
    [
        (4, 1, 1, 1 / 4),
        (4, 1, 2, 1 - 3 / 6),
        (4, 2, 2, 1 - 1 / 6),
        (4, 3, 2, 1.0),
        (16, 1, 16, 1.0),
        (16, 0, 16, 0.0),
        (5, 5, 1, 1.0),
    ],
)
def test_pass_at_k_by_hand(samples: int, right: int, k: int, value: float) -> None:
    assert one(samples, right, k) == pytest.approx(value, abs=1e-15)


def test_fewer_samples_than_k_have_no_value() -> None:
    assert math.isnan(one(3, 3, 4))
    assert math.isnan(one(0, 0, 1))


def test_many_samples_neither_overflow_nor_cancel() -> None:
    # C(n-1, k) / C(n, k) = (n - k) / n.
    assert one(1_000_000, 1, 100) == pytest.approx(1e-4, rel=1e-9)
    assert one(100_000, 99_999, 2) == 1.0


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_it_is_the_share_of_subsets_that_hold_a_right_one(sizes: tuple[int, int]) -> None:
    samples, right = sizes
    for k in range(1, samples + 1):
        subsets = list(combinations([True] * right + [False] * (samples - right), k))
        share = sum(map(any, subsets)) / len(subsets)
        assert one(samples, right, k) == pytest.approx(share)


@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_it_grows_with_k_and_begins_at_the_share_of_right_ones(sizes: tuple[int, int]) -> None:
    samples, right = sizes
    values = [one(samples, right, k) for k in range(1, min(samples, 20) + 1)]
    assert values[0] == pytest.approx(right / samples)
    assert all(0 <= low <= high + 1e-15 <= 1 + 1e-15 for low, high in pairwise(values))


def test_the_figure_is_the_mean_over_problems_that_have_enough() -> None:
    # p0: 1 of 2, p1: 2 of 2, p2: one sample, p3: one that could be judged, p4: none.
    problem = np.array([0, 0, 1, 1, 2, 3, 3, 4])
    acc = np.array([1, 0, 1, 1, 1, 0, math.nan, math.nan])
    ids = ("a", "b", "c", "d", "e")
    first = pass_at_k_estimate(acc, problem, 1, 0.95, ids)
    assert first.estimate.value == pytest.approx((0.5 + 1 + 1 + 0) / 4)
    assert (first.num_left_out, first.left_out) == (1, ("e",))
    second = pass_at_k_estimate(acc, problem, 2, 0.95, ids)
    assert second.estimate.value == 1.0
    assert (second.estimate.count, second.estimate.problems) == (4, 2)
    assert (second.num_left_out, second.left_out) == (3, ("c", "d", "e"))
    third = pass_at_k_estimate(acc, problem, 3, 0.95, ids)
    assert third.estimate.value is None and third.num_left_out == 5


def test_only_so_many_problems_are_named() -> None:
    ids = tuple(f"p{number:03}" for number in range(50))
    found = pass_at_k_estimate(np.ones(50), np.arange(50), 2, 0.95, ids)
    assert (found.num_left_out, found.left_out) == (50, ids[:MAX_NAMED])


def test_the_error_is_that_of_a_mean_of_problems() -> None:
    problem, acc = np.repeat(np.arange(4), 2), np.array([1, 0, 1, 1, 0, 0, 0, 1], dtype=float)
    found = pass_at_k_estimate(acc, problem, 2, 0.95, tuple("abcd"))
    values = [1.0, 1.0, 0.0, 1.0]
    assert found.estimate.value == pytest.approx(np.mean(values))
    assert found.estimate.std_error == pytest.approx(np.std(values, ddof=1) / 2)
