"""What is let in, whose turn it is to compute, and in which order work is done."""

from __future__ import annotations

import gc
import math
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import CancelledError
from functools import partial

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
    Refusal,
    Slots,
    WorkingThreads,
)


class Clock:
    """Time that passes when told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def bounded(limit_bytes: int, clock: Clock | None = None, burst_s: float = math.inf) -> Admission:
    """Return an admission that is bounded in bytes alone unless told otherwise."""
    return Admission(limit_bytes, burst_s, clock or Clock())


def refusal_of(admission: Admission, num_bytes: int, sender: str = "") -> Refusal:
    """Ask for a request that must be refused."""
    refusal = admission.admit(num_bytes, sender)
    assert refusal is not None
    return refusal


def served(admission: Admission, clock: Clock, num_bytes: int, seconds: float = 1.0) -> None:
    """Have a request served that takes so long."""
    assert admission.admit(num_bytes) is None
    clock.now += seconds
    admission.finish(num_bytes, begun=False, served=True)


def test_requests_are_let_in_up_to_the_limit_in_bytes() -> None:
    admission = bounded(100)
    assert admission.admit(60) is None
    assert admission.admit(40) is None
    assert refusal_of(admission, 1).reason == (
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
        served(admission, clock, 1_000_000)
    for _ in range(4):
        assert admission.admit(1_000_000) is None
    assert refusal_of(admission, 1).retry_after_s == pytest.approx(4.0, rel=0.05)


def test_idle_time_does_not_count_as_slowness() -> None:
    clock = Clock()
    admission = bounded(1_000_000, clock)
    for _ in range(20):
        served(admission, clock, 1_000_000)
        clock.now += 1000.0
    assert admission.admit(1_000_000) is None
    assert refusal_of(admission, 1).retry_after_s == pytest.approx(1.0, rel=0.05)


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
    assert refusal_of(admission, 100_000_000).retry_after_s == pytest.approx(3.0, rel=0.05)


@given(st.lists(st.tuples(st.integers(1, 10**9), st.floats(0, 1000)), max_size=50))
def test_the_hint_is_always_a_sensible_time(history: list[tuple[int, float]]) -> None:
    clock = Clock()
    admission = bounded(10**9, clock)
    for num_bytes, seconds in history:
        served(admission, clock, num_bytes, seconds)
    assert admission.admit(10**9) is None
    refusal = refusal_of(admission, 1)
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
    refusal = refusal_of(admission, 1_000_000, "one")
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


class Other:
    """A thread that takes a turn and keeps it until it is told to stop."""

    def __init__(self, slots: Slots) -> None:
        self.entered = threading.Event()
        self.leave = threading.Event()
        self._slots = slots
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with self._slots.held():
            self.entered.set()
            assert self.leave.wait(20)

    def end(self) -> None:
        self.leave.set()
        self._thread.join(20)


class Lender:
    """A thread that has a turn and lends it until it is told to go on."""

    def __init__(self, slots: Slots) -> None:
        self.lent = threading.Event()
        self.go_on = threading.Event()
        self.back = threading.Event()
        self._slots = slots
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self.lent.wait(20)

    def _run(self) -> None:
        with self._slots.held():
            with self._slots.lent():
                self.lent.set()
                assert self.go_on.wait(20)
            self.back.set()

    def end(self) -> None:
        assert self.back.wait(20)
        self._thread.join(20)


def test_no_more_have_a_turn_than_there_are() -> None:
    slots = Slots(2)
    others = [Other(slots) for _ in range(3)]
    entered = [other for other in others if other.entered.wait(0.3)]
    assert len(entered) == 2
    entered[0].end()
    assert all(other.entered.wait(20) for other in others)
    for other in others:
        other.end()


def test_a_lent_turn_is_anothers_and_its_lender_comes_before_who_waits_for_a_first_one() -> None:
    slots = Slots(1)
    lender = Lender(slots)
    first = Other(slots)
    assert first.entered.wait(20), "it has the lent turn"
    second = Other(slots)
    lender.go_on.set()
    assert not lender.back.wait(0.3), "the first has the turn"
    assert not second.entered.is_set()
    first.end()
    lender.end()
    assert second.entered.wait(20), "it was given back"
    second.end()


def test_no_turn_stays_free_while_somebody_waits() -> None:
    """Two turns come back while a lender waits: one is the lender's, one the newcomer's."""
    slots = Slots(2)
    holders = [Other(slots) for _ in range(2)]
    assert all(holder.entered.wait(20) for holder in holders)
    newcomer = Other(slots)
    assert not newcomer.entered.wait(0.1)
    # A lender that wants its turn back and is slow to come for it.
    slots._lenders += 1
    for holder in holders:
        holder.end()
    assert newcomer.entered.wait(20)
    slots._lenders -= 1
    newcomer.end()


def test_who_has_no_turn_lends_none() -> None:
    slots = Slots(1)
    with slots.lent():
        pass
    first = Other(slots)
    assert first.entered.wait(20)
    second = Other(slots)
    assert not second.entered.wait(0.3)
    first.end()
    assert second.entered.wait(20)
    second.end()


@pytest.fixture
def threads() -> Iterator[WorkingThreads]:
    """Four threads that share one turn."""
    working = WorkingThreads(4, Slots(1))
    yield working
    working.close()


class Gate:
    """Work that lasts until it is let go."""

    def __init__(self, threads: WorkingThreads) -> None:
        self.begun = threading.Event()
        self.open = threading.Event()
        self.done = threads.submit(self._wait)
        assert self.begun.wait(20)

    def _wait(self) -> None:
        self.begun.set()
        assert self.open.wait(20)


def test_work_is_begun_in_order_of_arrival(threads: WorkingThreads) -> None:
    gate = Gate(threads)
    begun: list[int] = []
    futures = [threads.submit(partial(begun.append, number)) for number in range(200)]
    gate.open.set()
    for future in futures:
        future.result(20)
    assert begun == list(range(200))


def test_what_work_returns_or_raises_is_its_submitters(threads: WorkingThreads) -> None:
    def fail() -> None:
        raise ValueError("of its own")

    failed = threads.submit(fail)
    assert threads.submit(lambda: 7).result(20) == 7
    with pytest.raises(ValueError, match="of its own"):
        failed.result(20)


def test_what_is_cancelled_before_its_turn_is_not_begun(threads: WorkingThreads) -> None:
    gate = Gate(threads)
    begun: list[str] = []
    left = threads.submit(lambda: begun.append("left"))
    stayed = threads.submit(lambda: begun.append("stayed"))
    assert left.cancel()
    gate.open.set()
    stayed.result(20)
    assert begun == ["stayed"]


def test_the_memory_of_work_that_failed_is_free_when_nobody_waits(
    threads: WorkingThreads,
) -> None:
    class Request:
        pass

    gone = threading.Event()

    def fail() -> None:
        request = Request()
        weakref.finalize(request, gone.set)
        raise ValueError("too late")

    gc.disable()
    try:
        threads.submit(fail)  # and its future is dropped
        assert threads.submit(lambda: True).result(20)
        assert gone.wait(20)
    finally:
        gc.enable()


def test_closing_drops_what_has_not_begun_and_takes_nothing_more(threads: WorkingThreads) -> None:
    gate = Gate(threads)
    waiting = [threads.submit(lambda: None) for _ in range(10)]
    threads.close()
    for future in waiting:
        with pytest.raises(CancelledError):
            future.result(20)
    with pytest.raises(RuntimeError):
        threads.submit(lambda: None)
    gate.open.set()
    gate.done.result(20)
