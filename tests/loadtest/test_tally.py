"""Counts over time in bounded memory."""

from __future__ import annotations

import pytest

from consensuspr.loadtest.stats import FIRST_BIN_S, MAX_BINS, Tally, Timeline


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
    tally = Tally()
    for name, count in counts.items():
        setattr(tally, name, count)
    tally.statuses.update(statuses)
    assert tally.error_rate == pytest.approx(errors)
    assert tally.shed_rate == pytest.approx(shed)


def test_the_first_sentence_of_an_error_stays() -> None:
    tally, later = Tally(), Tally()
    tally.examples["UNAVAILABLE"] = "first"
    later.examples["UNAVAILABLE"] = "second"
    tally.add(later)
    assert tally.examples == {"UNAVAILABLE": "first"}
