"""What is let in, and what a refused caller is told."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.server.admission import (
    INITIAL_BYTES_PER_S,
    MAX_RETRY_S,
    MIN_RETRY_S,
    STANDING_WAIT_S,
    Admission,
)


class Clock:
    """Time that passes when told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def bounded(
    limit_bytes: int, clock: Clock | None = None, at_once: int = 4, burst_s: float = math.inf
) -> Admission:
    """Return an admission that is bounded in bytes alone unless told otherwise."""
    return Admission(limit_bytes, at_once, burst_s, clock or Clock())


def test_requests_are_let_in_up_to_the_limit_in_bytes() -> None:
    admission = bounded(100)
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
    admission = bounded(100)
    assert admission.admit(101) is None
    assert admission.admit(1) is not None
    admission.finish(101, served=True)
    assert admission.admit(1) is None
    assert admission.admit(101) is not None


def test_the_hint_is_the_time_in_which_the_backlog_drains() -> None:
    clock = Clock()
    admission = bounded(4_000_000, clock)
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
    admission = bounded(1_000_000, clock)
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
    admission = bounded(100_000_000, clock)
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
    admission = bounded(10**9, clock)
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


def flooded(clock: Clock, seconds: float, num_bytes: int = 1_000_000) -> Admission:
    """Return the admission of a worker that has been offered too much for so long."""
    admission = bounded(10**9, clock, at_once=4, burst_s=0.25)
    for _ in range(10):
        assert admission.admit(num_bytes) is None, "a burst is queued"
    clock.now += seconds
    return admission


def test_a_burst_is_queued_and_a_standing_queue_is_not() -> None:
    clock = Clock()
    assert flooded(clock, 0.2).admit(1_000_000) is None
    refusal = flooded(clock, 0.3).admit(1_000_000)
    assert refusal is not None
    assert refusal.reason == (
        "this worker has been busy for 0.3 s without a pause and has 10 requests of 10000000"
        " bytes unfinished; it lets in no more than it works on at once until it has caught up"
    )
    # From ten requests to the four that are worked on at once.
    assert refusal.retry_after_s == pytest.approx(6_000_000 / INITIAL_BYTES_PER_S)


def test_what_is_worked_on_at_once_is_always_let_in() -> None:
    admission = flooded(Clock(), 100.0)
    for _ in range(7):
        admission.finish(1_000_000, served=False)
    assert admission.admit(1_000_000) is None, "it is the fourth"
    assert admission.admit(1_000_000) is not None


def test_short_requests_may_wait_for_a_moment_of_work() -> None:
    admission = flooded(Clock(), 100.0, num_bytes=5_000)
    let_in = 0
    while admission.admit(5_000) is None:
        let_in += 1
    moment_bytes = STANDING_WAIT_S * INITIAL_BYTES_PER_S
    assert (10 + let_in) * 5_000 == pytest.approx(moment_bytes, abs=5_000)


def test_a_worker_that_has_caught_up_queues_again() -> None:
    clock = Clock()
    admission = flooded(clock, 100.0)
    for _ in range(10):
        admission.finish(1_000_000, served=True)
    for _ in range(10):
        assert admission.admit(1_000_000) is None
