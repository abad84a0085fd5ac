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
from tests.processes import wait_for

MB = 1_000_000
BURST_S = 0.25


class Worker:
    """An admission whose time passes when told to.

    A request has a megabyte unless told otherwise; without ``burst_s`` only bytes are bounded.
    """

    def __init__(self, limit_bytes: int = 1000 * MB, burst_s: float = math.inf) -> None:
        self.now = 0.0
        self.admission = Admission(limit_bytes, burst_s, lambda: self.now)

    @property
    def unfinished(self) -> tuple[int, int]:
        return self.admission.unfinished_requests, self.admission.unfinished_bytes

    def lets_in(self, sender: str = "", num_bytes: int = MB) -> bool:
        return self.admission.admit(num_bytes, sender) is None

    def let_in(self, count: int, sender: str = "", num_bytes: int = MB) -> None:
        """Bring so many requests, which must all be let in."""
        assert all(self.lets_in(sender, num_bytes) for _ in range(count))

    def refusal(self, sender: str = "", num_bytes: int = MB) -> Refusal:
        """Bring a request that must be refused."""
        refusal = self.admission.admit(num_bytes, sender)
        assert refusal is not None
        return refusal

    def begin(self, count: int, sender: str = "one") -> None:
        for _ in range(count):
            self.admission.begin(MB, sender)

    def finish(
        self, num_bytes: int = MB, sender: str = "", *, begun: bool = False, served: bool = True
    ) -> None:
        self.admission.finish(num_bytes, sender, begun=begun, served=served)

    def serve(self, num_bytes: int = MB, seconds: float = 1.0) -> None:
        """Have a request served that takes so long."""
        self.let_in(1, num_bytes=num_bytes)
        self.now += seconds
        self.finish(num_bytes)


def test_requests_are_let_in_up_to_the_limit_in_bytes() -> None:
    worker = Worker(100)
    worker.let_in(1, num_bytes=60)
    worker.let_in(1, num_bytes=40)
    assert worker.refusal(num_bytes=1).reason == (
        "100 bytes of requests are unfinished and 1 more would exceed the limit of 100 bytes"
        " of this worker"
    )
    assert worker.unfinished == (2, 100)
    worker.finish(40)
    assert worker.lets_in(num_bytes=40)


def test_a_request_above_the_limit_is_let_in_alone() -> None:
    worker = Worker(100)
    assert [worker.lets_in(num_bytes=101), worker.lets_in(num_bytes=1)] == [True, False]
    worker.finish(101)
    assert [worker.lets_in(num_bytes=1), worker.lets_in(num_bytes=101)] == [True, False]


@pytest.mark.parametrize("idle_s", [0.0, 1000.0])  # which does not count as slowness
@pytest.mark.parametrize("backlog", [1, 4])
def test_the_hint_is_the_time_in_which_the_backlog_drains(backlog: int, idle_s: float) -> None:
    worker = Worker(backlog * MB)
    for _ in range(20):  # a megabyte a second, for long enough to be believed
        worker.serve()
        worker.now += idle_s
    worker.let_in(backlog)
    assert worker.refusal(num_bytes=1).retry_after_s == pytest.approx(backlog, rel=0.05)


def test_abandoned_work_does_not_count_as_speed() -> None:
    worker = Worker(100 * MB)
    for _ in range(20):
        worker.let_in(1)
        worker.let_in(1, num_bytes=90 * MB)
        worker.now += 1.0
        worker.finish(90 * MB, served=False)
        worker.finish()
    worker.let_in(3)
    assert worker.refusal(num_bytes=100 * MB).retry_after_s == pytest.approx(3.0, rel=0.05)


@given(st.lists(st.tuples(st.integers(1, 10**9), st.floats(0, 1000)), max_size=50))
def test_the_hint_is_always_a_sensible_time(history: list[tuple[int, float]]) -> None:
    worker = Worker(10**9)
    for num_bytes, seconds in history:
        worker.serve(num_bytes, seconds)
    worker.let_in(1, num_bytes=10**9)
    assert MIN_RETRY_S <= worker.refusal(num_bytes=1).retry_after_s <= MAX_RETRY_S
    worker.finish(10**9)
    assert worker.unfinished == (0, 0)


def flooded(seconds: float, num_bytes: int = MB) -> Worker:
    """Return a worker at which too many requests of sender ``one`` have waited for so long."""
    worker = Worker(burst_s=BURST_S)
    worker.let_in(FLOOD_REQUESTS, "one", num_bytes)  # a burst is queued
    worker.now += seconds
    return worker


def test_a_burst_is_queued_and_a_flood_is_not() -> None:
    assert flooded(0.2).admission.closed("one") is None
    assert flooded(0.2).lets_in("one")
    worker = flooded(0.3)
    refusal = worker.refusal("one")
    assert refusal == worker.admission.closed("one"), "known before the request has been received"
    assert refusal.reason == (
        "more comes by this connection than is served: 32 requests of 32000000 bytes wait for"
        " their turn; no more of its requests are let in until fewer do"
    )
    assert refusal.retry_after_s == pytest.approx(32 * MB / INITIAL_BYTES_PER_S / 2)
    assert worker.admission.unfinished_requests == FLOOD_REQUESTS


def test_senders_that_wait_for_replies_are_queued_however_many_they_are() -> None:
    worker = Worker(burst_s=BURST_S)
    for number in range(40):
        worker.let_in(8, str(number))
    for step in range(1000):
        worker.now += 0.01
        sender = str(step % 40)
        worker.begin(1, sender)
        worker.finish(sender=sender, begun=True)
        assert worker.lets_in(sender)
    assert worker.admission.unfinished_requests == 320


def test_a_flood_is_refused_to_who_floods() -> None:
    worker = flooded(0.3)
    assert not worker.lets_in("one")
    for _ in range(8):
        assert worker.admission.closed("another") is None
        assert worker.lets_in("another")
        assert worker.lets_in(), "nobody knows who sent it"
    assert not worker.lets_in("one")


def test_bursts_of_several_senders_are_no_flood_of_any() -> None:
    worker = flooded(0.2)
    worker.let_in(FLOOD_REQUESTS, "another")
    worker.begin(FLOOD_REQUESTS)
    worker.now += 0.1
    assert worker.lets_in("another")
    worker.now += 0.2
    assert not worker.lets_in("another")
    assert worker.lets_in("one")


def test_a_sender_that_left_is_forgotten() -> None:
    worker = Worker(burst_s=BURST_S)
    for sender in map(str, range(100)):
        worker.let_in(FLOOD_REQUESTS, sender)
        worker.now += 0.3
        assert not worker.lets_in(sender)
        for _ in range(FLOOD_REQUESTS):
            worker.finish(sender=sender, served=False)
    admission = worker.admission
    assert len(admission._refused_at) <= 2
    assert not admission._waiting_of
    assert not admission._flooding_since


def test_a_flood_is_over_when_few_of_the_sender_wait() -> None:
    worker = flooded(0.2)
    worker.begin(1)
    worker.now += 100.0
    assert worker.lets_in("one"), "it begins anew"
    worker.now += 0.2
    assert worker.lets_in("one")
    worker.now += 0.1
    assert not worker.lets_in("one")


def test_some_may_wait_in_a_flood_so_that_the_worker_does_not_idle() -> None:
    worker = flooded(100.0)
    for _ in range(FLOOD_REQUESTS - STANDING_REQUESTS):
        assert worker.admission.closed("one") is not None
        worker.begin(1)
    assert worker.admission.closed("one") is not None, "so many wait still"
    assert worker.admission.refusing
    worker.begin(1)
    assert [worker.lets_in("one"), worker.lets_in("one")] == [True, False]


def test_what_is_in_work_does_not_wait() -> None:
    worker = flooded(0.2)
    worker.begin(FLOOD_REQUESTS)
    worker.now += 100.0
    worker.let_in(FLOOD_REQUESTS, "one")  # the queue was empty until now
    for begun in (True, False):
        for _ in range(FLOOD_REQUESTS):
            worker.finish(sender="one", begun=begun, served=begun)
    assert not worker.admission.refusing
    assert worker.unfinished == (0, 0)


def test_short_requests_may_wait_for_a_moment_of_work() -> None:
    worker = flooded(100.0, num_bytes=5_000)
    while worker.lets_in("one", 5_000):
        pass
    moment_bytes = STANDING_WAIT_S * INITIAL_BYTES_PER_S
    assert worker.admission.unfinished_bytes == pytest.approx(moment_bytes, abs=5_000)


@pytest.mark.parametrize(("quiet_s", "queued"), [(0.1, False), (0.2, False), (0.3, True)])
def test_a_burst_is_queued_again_after_a_time_without_refusals(
    quiet_s: float, queued: bool
) -> None:
    worker = flooded(100.0)
    assert worker.admission.closed("one") is not None
    worker.begin(FLOOD_REQUESTS)
    worker.now += quiet_s
    assert worker.admission.refusing is not queued
    worker.let_in(STANDING_REQUESTS, "one")
    assert worker.lets_in("one") is queued


class Computing:
    """A thread that takes a turn, with ``lends`` lends it until it may go on, and keeps it then.

    Attributes:
        lent: set while it lends its turn.
        go_on: ends that.
        entered: set when it has its turn to keep.
    """

    def __init__(self, slots: Slots, lends: bool = False) -> None:
        self.lent, self.go_on, self.entered = (threading.Event() for _ in range(3))
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(slots, lends))
        self._thread.start()

    def _run(self, slots: Slots, lends: bool) -> None:
        with slots.held():
            if lends:
                with slots.lent():
                    self.lent.set()
                    assert self.go_on.wait(20)
            self.entered.set()
            assert self._leave.wait(20)

    def end(self) -> None:
        assert self.entered.wait(20)
        self._leave.set()
        self._thread.join(20)


def test_no_more_have_a_turn_than_there_are() -> None:
    slots = Slots(2)
    threads = [Computing(slots) for _ in range(3)]
    entered = [thread for thread in threads if thread.entered.wait(0.3)]
    assert len(entered) == 2
    entered[0].end()
    assert all(thread.entered.wait(20) for thread in threads)
    for thread in threads:
        thread.end()


def test_a_lent_turn_is_anothers_and_its_lender_comes_before_who_waits_for_a_first_one() -> None:
    slots = Slots(1)
    lender = Computing(slots, lends=True)
    assert lender.lent.wait(20)
    first = Computing(slots)
    assert first.entered.wait(20), "it has the lent turn"
    second = Computing(slots)
    lender.go_on.set()
    assert not lender.entered.wait(0.3), "the first has the turn"
    assert not second.entered.is_set()
    first.end()
    assert lender.entered.wait(20)
    assert not second.entered.is_set()
    lender.end()
    second.end()  # it was given back


def test_no_turn_stays_free_while_somebody_waits() -> None:
    """Two turns come back while a lender waits: one is the lender's, one the newcomer's."""
    slots = Slots(2)
    holders = [Computing(slots) for _ in range(2)]
    assert all(holder.entered.wait(20) for holder in holders)
    newcomer = Computing(slots)
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
    first = Computing(slots)
    assert first.entered.wait(20)
    second = Computing(slots)
    assert not second.entered.wait(0.3)
    first.end()
    second.end()


@pytest.fixture
def threads() -> Iterator[WorkingThreads]:
    """Four threads that share one turn."""
    working = WorkingThreads(4, Slots(1))
    yield working
    working.close()


class LongWork:
    """Work that has begun and lasts until it is let go."""

    def __init__(self, threads: WorkingThreads) -> None:
        begun, self.let_go = threading.Event(), threading.Event()

        def work() -> None:
            begun.set()
            assert self.let_go.wait(20)

        self.done = threads.submit(work)
        assert begun.wait(20)


def test_work_is_begun_in_order_of_arrival(threads: WorkingThreads) -> None:
    first = LongWork(threads)
    begun: list[int] = []
    futures = [threads.submit(partial(begun.append, number)) for number in range(200)]
    first.let_go.set()
    for future in futures:
        future.result(20)
    assert begun == list(range(200))


def test_of_idle_threads_the_one_that_worked_last_works_next() -> None:
    threads = WorkingThreads(2, Slots(2))
    works = [LongWork(threads), LongWork(threads)]

    def rest(number: int) -> bool:
        return len(threads._idle) == number

    for number, work in enumerate(works, start=1):
        work.let_go.set()
        work.done.result(20)
        wait_for(partial(rest, number))
    latest = threads._idle[-1]
    last = LongWork(threads)
    assert latest not in threads._idle and len(threads._idle) == 1
    last.let_go.set()
    threads.close()


def test_closing_ends_the_threads_that_rest() -> None:
    before = set(threading.enumerate())

    def working() -> int:
        return len(set(threading.enumerate()) - before)

    threads = WorkingThreads(3, Slots(3))
    works = [LongWork(threads) for _ in range(3)]
    assert working() == 3
    for work in works[1:]:
        work.let_go.set()
    wait_for(lambda: len(threads._idle) == 2)
    threads.close()
    wait_for(lambda: working() == 1)
    works[0].let_go.set()
    wait_for(lambda: working() == 0)


def test_what_work_returns_or_raises_is_its_submitters(threads: WorkingThreads) -> None:
    def fail() -> None:
        raise ValueError("of its own")

    failed = threads.submit(fail)
    assert threads.submit(lambda: 7).result(20) == 7
    with pytest.raises(ValueError, match="of its own"):
        failed.result(20)


def test_what_is_cancelled_before_its_turn_is_not_begun(threads: WorkingThreads) -> None:
    first = LongWork(threads)
    begun: list[str] = []
    left, stayed = (threads.submit(partial(begun.append, name)) for name in ("left", "stayed"))
    assert left.cancel()
    first.let_go.set()
    stayed.result(20)
    assert begun == ["stayed"]


def test_the_memory_of_work_that_failed_is_free_when_nobody_waits(threads: WorkingThreads) -> None:
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
    first = LongWork(threads)
    waiting = [threads.submit(lambda: None) for _ in range(10)]
    threads.close()
    for future in waiting:
        with pytest.raises(CancelledError):
            future.result(20)
    with pytest.raises(RuntimeError):
        threads.submit(lambda: None)
    first.let_go.set()
    first.done.result(20)
