"""Limits a minute: by a clock of the test's own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from consensusbench.llm.limits import Pace


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_requests_are_spaced_evenly() -> None:
    clock = Clock()
    pace = Pace(120, None, clock)
    assert [pace.book(9999) for _ in range(4)] == [0.0, 0.5, 1.0, 1.5]
    clock.now += 10
    assert pace.book(1) == 0.0  # what was not used is not saved up
    assert pace.book(1) == 0.5


def test_tokens_hold_up_the_next_request_and_are_put_right() -> None:
    clock = Clock()
    pace = Pace(None, 6000, clock)  # 100 a second
    assert pace.book(200) == 0.0
    assert pace.book(100) == 2.0
    pace.correct(200, 500)  # the first took 500
    assert pace.book(100) == 6.0


def test_a_hint_to_wait_holds_all() -> None:
    clock = Clock()
    pace = Pace(None, None, clock)
    assert pace.book(5) == 0.0
    pace.hold(3.0)
    pace.hold(1.0)
    assert pace.book(5) == 3.0
    clock.now += 4
    assert pace.book(5) == 0.0


@given(
    st.lists(st.tuples(st.floats(0, 5), st.integers(1, 500)), min_size=1, max_size=60),
    st.integers(1, 600),
)
def test_no_minute_holds_more_requests_than_allowed(
    arrivals: list[tuple[float, int]], limit: int
) -> None:
    clock = Clock()
    pace = Pace(limit, None, clock)
    starts = []
    for wait, tokens in arrivals:
        clock.now += wait
        starts.append(clock.now + pace.book(tokens))
    for first in starts:
        assert sum(first <= start < first + 60 - 1e-6 for start in starts) <= limit
