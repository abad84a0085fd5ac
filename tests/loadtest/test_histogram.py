"""Percentiles are right within the stated error, whatever the values."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.loadtest.stats import MAX_BUCKETS, MAX_S, MIN_S, RELATIVE_ERROR, Histogram

LATENCIES = st.lists(st.floats(MIN_S, MAX_S), min_size=1, max_size=300)
RANKS = (0.1, 1, 25, 50, 75, 90, 95, 99, 99.9, 100)


def filled(values: list[float]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram


@given(LATENCIES)
def test_percentiles_are_those_of_the_values(values: list[float]) -> None:
    wanted = np.percentile(values, RANKS, method="inverted_cdf")
    for found, right in zip(filled(values).percentiles(RANKS), wanted, strict=True):
        assert abs(found - right) <= RELATIVE_ERROR * right * (1 + 1e-9)


@given(st.lists(LATENCIES, min_size=1, max_size=4))
def test_adding_up_loses_nothing(parts: list[list[float]]) -> None:
    together = Histogram()
    for part in parts:
        together.add(pickle.loads(pickle.dumps(filled(part))))
    whole = filled([value for part in parts for value in part])
    assert together.percentiles(RANKS) == whole.percentiles(RANKS)
    assert (together.count, together.min_s, together.max_s) == (
        whole.count,
        whole.min_s,
        whole.max_s,
    )
    assert together.mean_s == pytest.approx(whole.mean_s)


def test_the_tail_of_a_thousand_is_not_rounded_away() -> None:
    histogram = filled([0.001] * 999 + [1.0])
    p999, p100 = histogram.percentiles((99.9, 100))
    assert p999 == pytest.approx(0.001, rel=RELATIVE_ERROR)
    assert p100 == 1.0


def test_memory_is_bounded() -> None:
    values = np.geomspace(MIN_S, MAX_S, 200_000)
    assert filled(values.tolist()).num_buckets <= MAX_BUCKETS


@pytest.mark.parametrize(("value", "kept"), [(0.0, MIN_S), (-1.0, MIN_S), (1e9, MAX_S)])
def test_what_is_outside_counts_as_the_bound(value: float, kept: float) -> None:
    assert filled([value]).percentile(50) == kept


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (0, (False, False, False, False)),
        (1, (False, False, False, False)),
        (5, (True, False, False, False)),
        (10, (True, True, False, False)),
        (99, (True, True, False, False)),
        (100, (True, True, True, False)),
        (999, (True, True, True, False)),
        (1000, (True, True, True, True)),
    ],
)
def test_a_percentile_beyond_the_sample_is_not_told(count: int, told: tuple[bool, ...]) -> None:
    found = filled([0.5] * count).resolved((50, 90, 99, 99.9))
    assert tuple(value == 0.5 for value in found) == told
    assert tuple(value is not None for value in found) == told


def test_nothing_has_no_percentiles() -> None:
    assert Histogram().percentiles((50, 99)) == []
    assert Histogram().percentile(50) is None
    assert Histogram().mean_s is None
