"""Means and ratios, and intervals that cover what they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensusbench.evaluation.estimates import (
    NO_VALUE,
    ONE_PROBLEM,
    SHARE,
    mean_estimate,
    ratio_estimate,
    t_quantile,
)

NAN = math.nan


def floats(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_a_mean_by_hand() -> None:
    # Residuals by problem: (1 - .75) + (0 - .75) = -.5 and (1 - .75) * 2 = .5.
    found = mean_estimate(floats(1, 0, 1, 1), ints(7, 7, 3, 3), 0.95)
    assert found.value == 0.75
    assert found.std_error == pytest.approx(math.sqrt(2 / 1 * (0.25 + 0.25) / 4**2))
    assert found.low == pytest.approx(0.75 - 12.7062047 * 0.25)
    assert found.high == pytest.approx(0.75 + 12.7062047 * 0.25)
    assert (found.count, found.problems, found.no_interval) == (4, 2, "")


def test_a_ratio_by_hand() -> None:
    # 30 + 10 + 20 tokens over 2 + 0 + 4 nodes; residuals 30 - 20 + 10 = 20 and 20 - 40 = -20.
    found = ratio_estimate(floats(30, 10, 20), floats(2, 0, 4), ints(0, 0, 1), 0.9)
    assert found.value == 10
    assert found.std_error == pytest.approx(math.sqrt(2 * (20**2 + 20**2) / 6**2))


def test_equal_rollouts_of_a_problem_add_no_certainty() -> None:
    values, problem = floats(1, 0, 1, 1, 0), np.arange(5)
    once = mean_estimate(values, problem, 0.95)
    often = mean_estimate(np.repeat(values, 16), np.repeat(problem, 16), 0.95)
    assert often.std_error == pytest.approx(once.std_error)
    assert (often.low, often.high) == pytest.approx((once.low, once.high))


def test_a_single_problem_has_no_interval_and_says_so() -> None:
    found = mean_estimate(floats(1, 0, 1), ints(4, 4, 4), 0.95)
    assert (found.low, found.high, found.no_interval) == (None, None, ONE_PROBLEM)
    assert found.to_json()["no_interval"] == ONE_PROBLEM


def test_nothing_known_is_no_value_and_not_zero() -> None:
    found = mean_estimate(floats(NAN, NAN), ints(0, 1), 0.95)
    assert (found.value, found.low, found.no_interval) == (None, None, NO_VALUE)
    assert ratio_estimate(floats(5), floats(0), ints(0), 0.95).value is None


def test_the_interval_of_a_share_solves_wilsons_equation() -> None:
    values, problem = floats(1, 1, 1, 0, 1, 1, 1, 1), ints(0, 0, 1, 1, 2, 2, 3, 3)
    found = mean_estimate(values, problem, 0.95, bounds=SHARE)
    assert found.value is not None and found.std_error is not None
    size = found.value * (1 - found.value) / found.std_error**2
    for end in (found.low, found.high):
        assert end is not None
        reach = t_quantile(0.95, 4) * math.sqrt(end * (1 - end) / size)
        assert abs(end - found.value) == pytest.approx(reach)


def test_all_right_is_not_certain_to_be_right() -> None:
    found = mean_estimate(np.ones(40), np.repeat(np.arange(10), 4), 0.95, bounds=SHARE)
    assert (found.value, found.high, found.std_error) == (1.0, 1.0, 0.0)
    t = t_quantile(0.95, 10)
    assert found.low == pytest.approx(1 / (1 + t * t / 10))


def test_problems_that_are_alike_are_not_certain() -> None:
    # Two problems of which half of the rollouts are right: no spread, and next to no knowledge.
    found = mean_estimate(floats(1, 0, 1, 0), ints(0, 0, 1, 1), 0.95, bounds=SHARE)
    assert found.value == 0.5 and found.low is not None and found.high is not None
    assert found.low < 0.1 and found.high > 0.9
    many = mean_estimate(floats(*[1, 0] * 400), ints(*np.arange(800) // 2), 0.95, bounds=SHARE)
    assert many.low == pytest.approx(0.45, abs=0.005)


@st.composite
def clustered(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    size = draw(st.integers(1, 40))
    values = draw(
        st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, NAN]), min_size=size, max_size=size)
    )
    problem = draw(st.lists(st.integers(0, 6), min_size=size, max_size=size))
    return np.array(values), np.array(problem)


@given(clustered(), st.randoms(use_true_random=False))
def test_order_does_not_matter(data: tuple[np.ndarray, np.ndarray], random: object) -> None:
    values, problem = data
    order = np.array(random.sample(range(len(values)), len(values)))  # type: ignore[attr-defined]
    found = mean_estimate(values, problem, 0.9)
    reordered = mean_estimate(values[order], problem[order], 0.9)
    assert found.value == pytest.approx(reordered.value)
    assert (found.low, found.high) == pytest.approx((reordered.low, reordered.high))


@given(clustered())
def test_an_interval_holds_its_value_and_a_share_stays_in_range(
    data: tuple[np.ndarray, np.ndarray],
) -> None:
    values, problem = data
    found = mean_estimate(values, problem, 0.95, bounds=SHARE)
    if found.low is not None and found.high is not None and found.value is not None:
        assert 0 <= found.low <= found.value <= found.high <= 1
        narrower = mean_estimate(values, problem, 0.5, bounds=SHARE)
        assert narrower.low is not None and narrower.low >= found.low - 1e-12


# The mean chance, clip(.6 + spread * normal, .02, .98), from twenty million draws.
@pytest.mark.parametrize(("spread", "truth"), [(0.0, 0.6), (0.3, 0.5884)])
def test_intervals_cover_the_truth_as_often_as_they_say(spread: float, truth: float) -> None:
    random = np.random.default_rng(7)
    problem = np.repeat(np.arange(40), 8)
    covered = 0
    for _ in range(400):
        chance = np.clip(0.6 + spread * random.standard_normal(40), 0.02, 0.98)
        right = (random.random((40, 8)) < chance[:, None]).ravel().astype(np.float64)
        found = mean_estimate(right, problem, 0.95, bounds=SHARE)
        assert found.low is not None and found.high is not None
        covered += found.low <= truth <= found.high
    # 380 are expected; the standard deviation of the count is 4.4.
    assert 366 <= covered <= 394
