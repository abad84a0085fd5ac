"""What is let in, and what a refused caller is told."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.server.admission import (
    FLOOD_REQUESTS,
    INITIAL_BYTES_PER_S,
    MAX_RETRY_S,
    MIN_RETRY_S,
    STANDING_REQUESTS,
    STANDING_WAIT_S,
    Admission,
)


class Clock:
    """Time that passes when told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def bounded(limit_bytes: int, clock: Clock | None = None, burst_s: float = math.inf) -> Admission:
    """Return an admission that is bounded in bytes alone unless told otherwise."""
    return Admission(limit_bytes, burst_s, clock or Clock())


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
    admission.finish(40, begun=False, served=True)
    assert admission.admit(40) is None


def test_a_request_above_the_limit_is_let_in_alone() -> None:
    admission = bounded(100)
    assert admission.admit(101) is None
    assert admission.admit(1) is not None
    admission.finish(101, begun=False, served=True)
    assert admission.admit(1) is None
    assert admission.admit(101) is not None


def test_the_hint_is_the_time_in_which_the_backlog_drains() -> None:
    clock = Clock()
    admission = bounded(4_000_000, clock)
    for _ in range(20):  # a megabyte a second, for long enough to be believed
        assert admission.admit(1_000_000) is None
        clock.now += 1.0
        admission.finish(1_000_000, begun=False, served=True)
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
        admission.finish(1_000_000, begun=False, served=True)
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
        admission.finish(90_000_000, begun=False, served=False)
        admission.finish(1_000_000, begun=False, served=True)
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
        admission.finish(num_bytes, begun=False, served=True)
    assert admission.admit(10**9) is None
    refusal = admission.admit(1)
    assert refusal is not None
    assert MIN_RETRY_S <= refusal.retry_after_s <= MAX_RETRY_S
    admission.finish(10**9, begun=False, served=True)
    assert (admission.unfinished_bytes, admission.unfinished_requests) == (0, 0)


BURST_S = 0.25


def flooded(clock: Clock, seconds: float, num_bytes: int = 1_000_000) -> Admission:
    """Return the admission of a worker at which too many of one sender have waited for so long."""
    admission = bounded(10**9, clock, BURST_S)
    for _ in range(FLOOD_REQUESTS):
        assert admission.admit(num_bytes, "one") is None, "a burst is queued"
    clock.now += seconds
    return admission


def test_a_burst_is_queued_and_a_flood_is_not() -> None:
    clock = Clock()
    assert flooded(clock, 0.2).closed("one") is None
    assert flooded(clock, 0.2).admit(1_000_000, "one") is None
    admission = flooded(clock, 0.3)
    refusal = admission.admit(1_000_000, "one")
    assert refusal is not None
    assert refusal == admission.closed("one"), "known before the request has been received"
    assert refusal.reason == (
        "more comes by this connection than is served: 32 requests of 32000000 bytes wait for"
        " their turn; no more of its requests are let in until fewer do"
    )
    assert refusal.retry_after_s == pytest.approx(32_000_000 / INITIAL_BYTES_PER_S / 2)
    assert admission.unfinished_requests == FLOOD_REQUESTS


def test_senders_that_wait_for_replies_are_queued_however_many_they_are() -> None:
    clock = Clock()
    admission = bounded(10**9, clock, BURST_S)
    for number in range(40):
        for _ in range(8):
            assert admission.admit(1_000_000, str(number)) is None
    for step in range(1000):
        clock.now += 0.01
        sender = str(step % 40)
        admission.begin(1_000_000, sender)
        admission.finish(1_000_000, sender, begun=True, served=True)
        assert admission.admit(1_000_000, sender) is None
    assert admission.unfinished_requests == 320


def test_a_flood_is_refused_to_who_floods() -> None:
    clock = Clock()
    admission = flooded(clock, 0.3)
    assert admission.admit(1_000_000, "one") is not None
    for _ in range(8):
        assert admission.closed("another") is None
        assert admission.admit(1_000_000, "another") is None
        assert admission.admit(1_000_000) is None, "nobody knows who sent it"
    assert admission.admit(1_000_000, "one") is not None


def test_bursts_of_several_senders_are_no_flood_of_any() -> None:
    clock = Clock()
    admission = flooded(clock, 0.2)
    for _ in range(FLOOD_REQUESTS):
        assert admission.admit(1_000_000, "another") is None
    for _ in range(FLOOD_REQUESTS):
        admission.begin(1_000_000, "one")
    clock.now += 0.1
    assert admission.admit(1_000_000, "another") is None
    clock.now += 0.2
    assert admission.admit(1_000_000, "another") is not None
    assert admission.admit(1_000_000, "one") is None


def test_a_sender_that_left_is_forgotten() -> None:
    clock = Clock()
    admission = bounded(10**9, clock, BURST_S)
    for number in range(100):
        sender = str(number)
        for _ in range(FLOOD_REQUESTS):
            assert admission.admit(1_000_000, sender) is None
        clock.now += 0.3
        assert admission.admit(1_000_000, sender) is not None
        for _ in range(FLOOD_REQUESTS):
            admission.finish(1_000_000, sender, begun=False, served=False)
    assert len(admission._refused_at) <= 2
    assert not admission._waiting_of
    assert not admission._flooding_since


def test_a_flood_is_over_when_few_of_the_sender_wait() -> None:
    clock = Clock()
    admission = flooded(clock, 0.2)
    admission.begin(1_000_000, "one")
    clock.now += 100.0
    assert admission.admit(1_000_000, "one") is None, "it begins anew"
    clock.now += 0.2
    assert admission.admit(1_000_000, "one") is None
    clock.now += 0.1
    assert admission.admit(1_000_000, "one") is not None


def test_some_may_wait_in_a_flood_so_that_the_worker_does_not_idle() -> None:
    admission = flooded(Clock(), 100.0)
    for _ in range(FLOOD_REQUESTS - STANDING_REQUESTS):
        assert admission.closed("one") is not None
        admission.begin(1_000_000, "one")
    assert admission.closed("one") is not None, "so many wait still"
    assert admission.refusing
    admission.begin(1_000_000, "one")
    assert admission.admit(1_000_000, "one") is None
    assert admission.admit(1_000_000, "one") is not None


def test_what_is_in_work_does_not_wait() -> None:
    clock = Clock()
    admission = flooded(clock, 0.2)
    for _ in range(FLOOD_REQUESTS):
        admission.begin(1_000_000, "one")
    clock.now += 100.0
    for _ in range(FLOOD_REQUESTS):
        assert admission.admit(1_000_000, "one") is None, "the queue was empty until now"
    for _ in range(FLOOD_REQUESTS):
        admission.finish(1_000_000, "one", begun=True, served=True)
        admission.finish(1_000_000, "one", begun=False, served=False)
    assert not admission.refusing
    assert (admission.unfinished_bytes, admission.unfinished_requests) == (0, 0)


def test_short_requests_may_wait_for_a_moment_of_work() -> None:
    admission = flooded(Clock(), 100.0, num_bytes=5_000)
    let_in = 0
    while admission.admit(5_000, "one") is None:
        let_in += 1
    moment_bytes = STANDING_WAIT_S * INITIAL_BYTES_PER_S
    assert (FLOOD_REQUESTS + let_in) * 5_000 == pytest.approx(moment_bytes, abs=5_000)


@pytest.mark.parametrize(
    ("quiet_s", "queued"),
    [(0.1, False), (0.2, False), (0.3, True)],
)
def test_a_burst_is_queued_again_after_a_time_without_refusals(
    quiet_s: float, queued: bool
) -> None:
    clock = Clock()
    admission = flooded(clock, 100.0)
    assert admission.closed("one") is not None
    for _ in range(FLOOD_REQUESTS):
        admission.begin(1_000_000, "one")
    clock.now += quiet_s
    assert admission.refusing is not queued
    for _ in range(STANDING_REQUESTS):
        assert admission.admit(1_000_000, "one") is None
    assert (admission.admit(1_000_000, "one") is None) is queued
