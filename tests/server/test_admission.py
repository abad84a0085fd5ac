"""What is let in, and what a refused caller is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.server.admission import MAX_RETRY_S, MIN_RETRY_S, Admission


class Clock:
    """Time that passes when told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_requests_are_let_in_up_to_the_limit_in_bytes() -> None:
    admission = Admission(100)
    assert admission.admit(60) is None
    assert admission.admit(40) is None
    refusal = admission.admit(1)
    assert refusal is not None
    assert refusal.reason == (
        "100 bytes of requests are unfinished and 1 more would exceed the limit of 100 bytes"
        " of this worker"
    )
    assert (admission.unfinished_bytes, admission.unfinished_requests) == (100, 2)
    admission.finish(40, served=True)
    assert admission.admit(40) is None


def test_a_request_above_the_limit_is_let_in_alone() -> None:
    admission = Admission(100)
    assert admission.admit(101) is None
    assert admission.admit(1) is not None
    admission.finish(101, served=True)
    assert admission.admit(1) is None
    assert admission.admit(101) is not None


def test_the_hint_is_the_time_in_which_the_backlog_drains() -> None:
    clock = Clock()
    admission = Admission(4_000_000, clock)
    for _ in range(20):  # a megabyte a second, for long enough to be believed
        assert admission.admit(1_000_000) is None
        clock.now += 1.0
        admission.finish(1_000_000, served=True)
    for _ in range(4):
        assert admission.admit(1_000_000) is None
    refusal = admission.admit(1)
    assert refusal is not None
    assert refusal.retry_after_s == pytest.approx(4.0, rel=0.05)


def test_idle_time_does_not_count_as_slowness() -> None:
    clock = Clock()
    admission = Admission(1_000_000, clock)
    for _ in range(20):
        assert admission.admit(1_000_000) is None
        clock.now += 1.0
        admission.finish(1_000_000, served=True)
        clock.now += 1000.0
    assert admission.admit(1_000_000) is None
    refusal = admission.admit(1)
    assert refusal is not None
    assert refusal.retry_after_s == pytest.approx(1.0, rel=0.05)


def test_abandoned_work_does_not_count_as_speed() -> None:
    clock = Clock()
    admission = Admission(100_000_000, clock)
    for _ in range(20):
        assert admission.admit(1_000_000) is None
        assert admission.admit(90_000_000) is None
        clock.now += 1.0
        admission.finish(90_000_000, served=False)
        admission.finish(1_000_000, served=True)
    assert admission.admit(3_000_000) is None
    refusal = admission.admit(100_000_000)
    assert refusal is not None
    assert refusal.retry_after_s == pytest.approx(3.0, rel=0.05)


@given(st.lists(st.tuples(st.integers(1, 10**9), st.floats(0, 1000)), max_size=50))
def test_the_hint_is_always_a_sensible_time(history: list[tuple[int, float]]) -> None:
    clock = Clock()
    admission = Admission(10**9, clock)
    for num_bytes, seconds in history:
        assert admission.admit(num_bytes) is None
        clock.now += seconds
        admission.finish(num_bytes, served=True)
    assert admission.admit(10**9) is None
    refusal = admission.admit(1)
    assert refusal is not None
    assert MIN_RETRY_S <= refusal.retry_after_s <= MAX_RETRY_S
    admission.finish(10**9, served=True)
    assert (admission.unfinished_bytes, admission.unfinished_requests) == (0, 0)
