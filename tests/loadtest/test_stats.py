"""Percentiles, counts over time and samples: right within the stated error, in bounded memory."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.loadtest.settings import FIRST_BIN_S, MAX_BINS
from consensuspr.loadtest.stats import (
    FIRST_SAMPLES,
    MAX_S,
    MAX_SAMPLES,
    MIN_S,
    RELATIVE_ERROR,
    Histogram,
    LoadReply,
    LoadTally,
    ScoreSampler,
    Timeline,
)
from consensuspr.scoring.types import Score, Status

LATENCIES = st.lists(st.floats(MIN_S, MAX_S), min_size=1, max_size=300)
RIGHT = Score(Status.OK, reward=1.0)
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
        assert found == pytest.approx(right, rel=RELATIVE_ERROR * (1 + 1e-9))


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
    assert p100 == pytest.approx(1.0, rel=RELATIVE_ERROR)


def test_memory_is_bounded() -> None:
    histogram = filled(np.geomspace(MIN_S, MAX_S, 20_000).tolist())
    assert histogram.count == histogram.steps.sum() == 20_000
    assert histogram.steps.nbytes < 16 << 10


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
    assert Histogram().percentiles((50, 99)) == [None, None]
    assert Histogram().percentile(50) is None
    assert Histogram().mean_s is None


def test_long_runs_get_wider_bins_and_lose_nothing() -> None:
    timeline = Timeline()
    seconds = int(4 * MAX_BINS * FIRST_BIN_S)
    for second in range(seconds):
        timeline.at(second).due += 1
        timeline.at(second).latency.record(0.01)
    bins = timeline.bins()
    assert len(bins) <= MAX_BINS
    assert sum(its.due for _, its in bins) == seconds
    assert sum(its.latency.count for _, its in bins) == seconds
    assert [start for start, _ in bins[:3]] == [0, timeline.width_s, 2 * timeline.width_s]
    assert timeline.between(0, 100).due == pytest.approx(100, abs=timeline.width_s)


def test_timelines_of_different_width_add_up() -> None:
    long, short = Timeline(), Timeline()
    long.at(MAX_BINS * FIRST_BIN_S * 3).due = 1
    for second in range(8):
        short.at(second).due += 1
    short.add(long)
    long.add(short)
    assert short.width_s == long.width_s > FIRST_BIN_S
    assert sum(its.due for _, its in short.bins()) == 9
    assert sum(its.due for _, its in long.bins()) == 10


def test_a_coarser_copy_leaves_the_timeline_alone() -> None:
    timeline = Timeline()
    for second in range(100):
        timeline.at(second).answered += 1
    copy = timeline.at_most(10)
    assert len(copy.bins()) <= 10
    assert sum(its.answered for _, its in copy.bins()) == 100
    assert timeline.width_s == FIRST_BIN_S


@pytest.mark.parametrize(
    ("counts", "statuses", "errors", "shed"),
    [
        ({}, {}, 0, 0),
        ({"answered": 99, "failed": 1}, {}, 0.01, 0),
        ({"answered": 50, "shed": 50}, {}, 0, 0.5),
        ({"failed": 5, "shed": 5}, {}, 1, 0.5),
        ({"answered": 10, "rollouts": 40}, {"INTERNAL": 10, "OK": 30}, 0.25, 0),
        (
            {"answered": 5, "failed": 5, "rollouts": 20},
            {"INTERNAL": 10, "OK": 10},
            0.75,
            0,
        ),
    ],
)
def test_error_and_shed_rates(
    counts: dict[str, int], statuses: dict[str, int], errors: float, shed: float
) -> None:
    tally = LoadTally()
    for name, count in counts.items():
        setattr(tally, name, count)
    tally.statuses.update(statuses)
    assert tally.error_rate == pytest.approx(errors)
    assert tally.shed_rate == pytest.approx(shed)


def test_the_first_sentence_of_an_error_stays() -> None:
    tally, later = LoadTally(), LoadTally()
    tally.examples["UNAVAILABLE"] = "first"
    later.examples["UNAVAILABLE"] = "second"
    tally.add(later)
    assert tally.examples == {"UNAVAILABLE": "first"}


@pytest.mark.parametrize(
    ("share", "replies", "least", "most"),
    [
        (0.0, 5000, 0, 0),
        (0.001, 10, FIRST_SAMPLES, 2 * FIRST_SAMPLES),
        (0.5, 1000, 1300, MAX_SAMPLES),
        (1.0, 5000, MAX_SAMPLES, MAX_SAMPLES),
    ],
)
def test_a_share_of_the_scores_is_kept(share: float, replies: int, least: int, most: int) -> None:
    sampler = ScoreSampler(share, seed=1)
    for number in range(replies):
        sampler.offer(LoadReply((number,) * 3, 1, {}, "d", lambda _: RIGHT))
    assert least <= len(sampler.samples) <= most
    if share == 1.0:  # of the whole run, not of its beginning
        assert sum(sample.position >= replies / 2 for sample in sampler.samples) > MAX_SAMPLES / 4
