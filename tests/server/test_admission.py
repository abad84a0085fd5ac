"""What is let in, whose turn it is to compute, and in which order work is done."""

from __future__ import annotations

import contextlib
import gc
import math
import threading
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.server.admission import (
    FLOOD_REQUESTS,
    INITIAL_BYTES_PER_S,
    KEPT_S,
    MAX_FLOWS,
    MAX_REMEMBERED,
    MAX_RETRY_S,
    MIN_RETRY_S,
    QUIET_BURSTS,
    STANDING_REQUESTS,
    STANDING_WAIT_S,
    TIMELY_SHARE,
    Admission,
    Job,
    Origin,
    Refusal,
    Slots,
    WorkingThreads,
    Yielding,
)
from tests.processes import wait_for

MB = 1_000_000
BURST_S = 0.25


class Worker:
    """An admission whose time passes when told to.

    A request has a megabyte unless told otherwise, and comes by the connection ``sender``;
    without ``burst_s`` only bytes are bounded.
    """

    def __init__(
        self, limit_bytes: int = 1000 * MB, burst_s: float = math.inf, in_work: int = 10**6
    ) -> None:
        self.now = 0.0
        self.admission = Admission(limit_bytes, burst_s, in_work, lambda: self.now)
        self._waiting: defaultdict[str, list[Job]] = defaultdict(list)
        self.begun: list[Job] = []

    @property
    def unfinished(self) -> tuple[int, int]:
        return self.admission.unfinished_requests, self.admission.unfinished_bytes

    def comes(self, job: Job) -> Refusal | None:
        """Bring a request; return why it is refused."""
        refusal = self.admission.admit(job)
        if refusal is None:
            self._waiting[job.caller.connection].append(job)
        return refusal

    def lets_in(self, sender: str = "", num_bytes: int = MB) -> bool:
        return self.comes(job(sender, num_bytes)) is None

    def let_in(self, count: int, sender: str = "", num_bytes: int = MB) -> None:
        """Bring so many requests, which must all be let in."""
        assert all(self.lets_in(sender, num_bytes) for _ in range(count))

    def refusal(self, sender: str = "", num_bytes: int = MB) -> Refusal:
        """Bring a request that must be refused."""
        refusal = self.comes(job(sender, num_bytes))
        assert refusal is not None
        return refusal

    def closed(self, sender: str = "") -> Refusal | None:
        """Return why a request would be refused before its bytes are received."""
        with self.admission.coming(Origin(sender)) as refusal:
            return refusal

    def begin(self, count: int) -> None:
        """Begin the work on what is next."""
        for _ in range(count):
            taken = self.admission.take()
            assert taken is not None
            self._waiting[taken.caller.connection].remove(taken)
            self.begun.append(taken)

    def work(self, seconds: float = 0.0) -> Job:
        """Do what is next, which takes so much of a processor and as long; return it."""
        self.begin(1)
        done = self.begun.pop()
        done.worked_s = seconds
        self.now += seconds
        self.admission.finish(done, served=True)
        return done

    def leave(self, sender: str = "", num_bytes: int = MB) -> None:
        """Have the caller of a request leave that waits."""
        left = next(each for each in self._waiting[sender] if each.num_bytes == num_bytes)
        self._waiting[sender].remove(left)
        self.admission.finish(left, served=False)

    def finish(self) -> None:
        """Finish what was begun first."""
        self.admission.finish(self.begun.pop(0), served=True)

    def serve(self, num_bytes: int = MB, seconds: float = 1.0) -> None:
        """Have a request served that takes so long."""
        self.let_in(1, num_bytes=num_bytes)
        self.work(seconds)


def job(
    connection: str = "", num_bytes: int = MB, run: str = "", deadline: float | None = None
) -> Job:
    """Return a request without work."""
    return Job(lambda: None, num_bytes, Origin(connection, run), deadline)


def test_a_call_counts_from_its_header_until_its_reply_has_been_taken() -> None:
    worker = Worker(limit_bytes=100)
    admission = worker.admission
    with ExitStack() as calls:
        for _ in range(7):
            assert calls.enter_context(admission.coming(Origin("a:1"), call_bytes=10)) is None
        # Three times what would be left for others.
        with admission.coming(Origin("a:2"), call_bytes=10) as refusal:
            assert refusal is not None
        with admission.coming(Origin("b:1"), call_bytes=10) as refusal:
            assert refusal is None
        assert worker.unfinished == (0, 70)
    assert worker.unfinished == (0, 0)

    replied, left = (Job(lambda: None, 40, Origin("a:1"), call_bytes=10) for _ in range(2))
    for job_ in (replied, left):
        assert admission.admit(job_) is None
        assert admission.take() is job_
        if job_ is left:
            admission.replied(job_)  # its caller has
            assert worker.unfinished == (1, 40)
        admission.finish(job_, served=True, reply_bytes=5)
        if job_ is replied:
            assert worker.unfinished == (0, 15)
            admission.replied(job_)
        assert worker.unfinished == (0, 0)
    assert not admission._flows


def test_a_request_that_is_the_only_one_is_let_in_beside_calls() -> None:
    """Whatever its size, and whatever replies are not taken; but not any number of such calls."""
    admission = Worker(limit_bytes=100).admission
    for _ in range(7):
        small = Job(lambda: None, 10, Origin("a:1"), call_bytes=10)
        assert admission.admit(small) is None
        admission.take()
        admission.finish(small, served=True)
    assert admission.admit(Job(lambda: None, 10, Origin("a:1"), call_bytes=10)) is not None
    large = Job(lambda: None, 1000, Origin("b:1"), call_bytes=10)
    assert admission.admit(large) is None
    admission.take()
    admission.finish(large, served=True)
    assert admission.unfinished_bytes == 80
    # Also where a call alone is more than there may be.
    assert Worker(limit_bytes=5).admission.admit(Job(lambda: None, 10, call_bytes=10)) is None


def test_what_arrives_counts_with_the_requests() -> None:
    books = Worker(100).admission
    assert books.hold(70, 0) is None, "the only body may be larger than half of the limit"
    assert books.hold(20, 70) is None
    refusal = books.hold(1, 0)
    assert refusal is not None
    assert (
        refusal.reason == "90 bytes are arriving and 1 more would exceed the limit of 50 bytes"
        " of this worker"
    )
    assert books.unfinished_bytes == 90
    books.release(90)
    assert books.hold(30, 0) is None
    assert books.hold(20, 0) is None
    assert books.hold(1, 20) is not None
    books.release(50)
    assert books.unfinished_bytes == 0


def test_requests_and_what_arrives_share_the_limit() -> None:
    worker = Worker(100)
    assert worker.admission.hold(45, 0) is None
    assert worker.lets_in(num_bytes=20)
    assert not worker.lets_in(num_bytes=40)
    refusal = worker.admission.hold(40, 0)
    assert refusal is not None
    assert "65 bytes of requests are unfinished" in refusal.reason
    worker.admission.release(45)
    assert worker.lets_in("other", num_bytes=10)


def test_what_is_unpacked_counts_before_it_is_admitted() -> None:
    admission = Worker(100).admission
    a, b = Origin("a:1"), Origin("b:1")
    with admission.unpacking(a, 60) as refusal:
        assert refusal is None
        assert (admission.unfinished_requests, admission.unfinished_bytes) == (0, 60)
        with admission.unpacking(a, 20) as refusal:
            assert refusal is not None, "above the share of a host"
        with admission.unpacking(b, 50) as refusal:
            assert refusal is not None
            assert "exceed the limit of 100 bytes" in refusal.reason
        with admission.unpacking(b, 40) as refusal:
            assert refusal is None
    assert admission.unfinished_bytes == 0
    with admission.unpacking(a, 1000) as refusal:
        assert refusal is None, "alone it could otherwise never be served"


def test_requests_are_let_in_up_to_the_limit_in_bytes() -> None:
    worker = Worker(100)
    for sender, num_bytes in (("a:1", 60), ("b:1", 40)):
        worker.let_in(1, sender, num_bytes)
    assert worker.refusal("c:1", 1).reason == (
        "100 bytes of requests are unfinished and 1 more would exceed the limit of 100 bytes"
        " of this worker"
    )
    assert worker.unfinished == (2, 100)
    worker.leave("b:1", 40)
    assert worker.lets_in("c:1", 40)


def test_one_run_leaves_bytes_to_others() -> None:
    worker = Worker(100)
    worker.let_in(3, "a:1", 25)
    assert worker.refusal("a:2", 1).reason == (
        "75 bytes of requests of this run or host are unfinished, and 1 more would be above its"
        " share: 3 times what is left for others of the 100 bytes of this worker"
    )
    assert worker.lets_in("b:1", 25), "what has nothing there yet finds room"
    assert not worker.lets_in("b:1", 1)


def test_names_and_connections_of_one_host_hold_no_more_together_than_one() -> None:
    worker = Worker(100)
    let_in = sum(worker.comes(job(f"a:{n}", 1, f"run {n}")) is None for n in range(200))
    assert let_in == 75
    assert worker.lets_in("b:1", 25)


def test_a_request_above_the_limit_is_let_in_alone() -> None:
    worker = Worker(100)
    assert [worker.lets_in(num_bytes=101), worker.lets_in(num_bytes=1)] == [True, False]
    worker.leave(num_bytes=101)
    assert [worker.lets_in(num_bytes=1), worker.lets_in(num_bytes=101)] == [True, False]


@pytest.mark.parametrize("idle_s", [0.0, 1000.0])  # which does not count as slowness
@pytest.mark.parametrize("backlog", [1, 4])
def test_the_hint_is_the_time_in_which_the_backlog_drains(backlog: int, idle_s: float) -> None:
    worker = Worker(4 * backlog * MB // 3 + 1)
    for _ in range(20):  # a megabyte a second, for long enough to be believed
        worker.serve()
        worker.now += idle_s
    worker.let_in(backlog)
    assert worker.refusal(num_bytes=MB // 2).retry_after_s == pytest.approx(backlog, rel=0.05)


def test_abandoned_work_does_not_count_as_speed() -> None:
    worker = Worker(100 * MB)
    for _ in range(20):
        worker.let_in(1, "a:1")
        worker.let_in(1, "b:1", num_bytes=90 * MB)
        worker.leave("b:1", 90 * MB)
        worker.work(1.0)
    worker.let_in(3)
    assert worker.refusal(num_bytes=100 * MB).retry_after_s == pytest.approx(3.0, rel=0.05)


@given(st.lists(st.tuples(st.integers(1, 10**9), st.floats(0, 1000)), max_size=50))
def test_the_hint_is_always_a_sensible_time(history: list[tuple[int, float]]) -> None:
    worker = Worker(10**9)
    for num_bytes, seconds in history:
        worker.serve(num_bytes, seconds)
    worker.let_in(1, num_bytes=10**9)
    assert MIN_RETRY_S <= worker.refusal(num_bytes=1).retry_after_s <= MAX_RETRY_S
    worker.leave(num_bytes=10**9)
    assert worker.unfinished == (0, 0)


def flooded(seconds: float, num_bytes: int = MB) -> Worker:
    """Return a worker at which too many requests of sender ``one`` have waited for so long."""
    worker = Worker(burst_s=BURST_S)
    worker.let_in(FLOOD_REQUESTS, "one", num_bytes)  # a burst is queued
    worker.now += seconds
    return worker


def test_a_burst_is_queued_and_a_flood_is_not() -> None:
    assert flooded(0.2).closed("one") is None
    assert flooded(0.2).lets_in("one")
    worker = flooded(0.3)
    refusal = worker.refusal("one")
    assert refusal == worker.closed("one"), "known before the request has been received"
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
    for _ in range(1000):
        worker.now += 0.01
        assert worker.lets_in(worker.work().caller.connection)
    assert worker.admission.unfinished_requests == 320


def test_a_flood_is_refused_to_who_floods() -> None:
    worker = flooded(0.3)
    assert not worker.lets_in("one")
    for _ in range(8):
        assert worker.closed("another") is None
        assert worker.lets_in("another")
        assert worker.lets_in(), "nobody knows who sent it"
    assert not worker.lets_in("one")


def test_bursts_of_several_senders_are_no_flood_of_any() -> None:
    worker = flooded(0.2)
    for _ in range(FLOOD_REQUESTS):
        worker.leave("one")
    worker.let_in(FLOOD_REQUESTS, "another")
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
            worker.leave(sender)
    admission = worker.admission
    assert len(admission._refused_at) <= 1 + QUIET_BURSTS
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
        assert worker.closed("one") is not None
        worker.begin(1)
    assert worker.closed("one") is not None, "so many wait still"
    assert worker.admission.refusing
    worker.begin(1)
    assert [worker.lets_in("one"), worker.lets_in("one")] == [True, False]


def test_what_is_in_work_does_not_wait() -> None:
    worker = flooded(0.2)
    worker.begin(FLOOD_REQUESTS)
    worker.now += 100.0
    worker.let_in(FLOOD_REQUESTS, "one")  # the queue was empty until now
    for _ in range(FLOOD_REQUESTS):
        worker.finish()
        worker.leave("one")
    assert not worker.admission.refusing
    assert worker.unfinished == (0, 0)


def test_short_requests_may_wait_for_a_moment_of_work() -> None:
    worker = flooded(100.0, num_bytes=5_000)
    while worker.lets_in("one", 5_000):
        pass
    moment_bytes = STANDING_WAIT_S * INITIAL_BYTES_PER_S
    assert worker.admission.unfinished_bytes == pytest.approx(moment_bytes, abs=5_000)


@pytest.mark.parametrize(("quiet_s", "queued"), [(0.3, False), (1.9, False), (2.1, True)])
def test_a_burst_is_queued_again_after_a_time_without_refusals(
    quiet_s: float, queued: bool
) -> None:
    worker = flooded(100.0)
    assert worker.closed("one") is not None
    worker.begin(FLOOD_REQUESTS)
    worker.now += quiet_s
    assert worker.admission.refusing is not queued
    worker.let_in(STANDING_REQUESTS, "one")
    assert worker.lets_in("one") is queued


# -- a share for each run


def come(worker: Worker, count: int, connection: str, run: str = "", num_bytes: int = MB) -> None:
    """Bring so many requests, which must all be let in."""
    for _ in range(count):
        assert worker.comes(job(connection, num_bytes, run)) is None


@pytest.mark.parametrize(
    ("flooding", "modest"),
    [
        ([("a:1", "big")], ("a:2", "small")),  # two runs on one machine
        ([("a:1", "big")], ("b:1", "small")),
        ([(f"{host}:1", "big") for host in "acdefg"], ("b:1", "small")),  # a run on many machines
        ([("a:1", f"big {n}") for n in range(300)], ("b:1", "small")),  # ... under false names
        ([(f"a:{n}", "") for n in range(50)], ("b:1", "")),  # nobody has a name
        ([(f"a:{n}", "") for n in range(50)], ("a:99", "small")),
    ],
)
def test_a_run_gets_half_of_the_work_whatever_another_sends(
    flooding: list[tuple[str, str]], modest: tuple[str, str]
) -> None:
    worker = Worker(10**6 * MB)
    for connection, run in flooding:
        come(worker, 600 // len(flooding), connection, run)
    worker.begin(10)
    come(worker, 50, *modest)
    turns = [worker.work(0.01).caller for _ in range(100)]
    of_modest = sum((caller.connection, caller.run) == modest for caller in turns)
    assert 48 <= of_modest <= 50, "the first turns may go to who had none before"


def test_connections_of_a_run_take_turns() -> None:
    worker = Worker()
    come(worker, 100, "a:1")
    come(worker, 3, "a:2")
    turns = [worker.work().caller.connection for _ in range(6)]
    assert turns == ["a:1", "a:2"] * 3


def test_what_is_charged_is_the_work_and_not_the_bytes() -> None:
    """A run whose bytes cost thirty times as much gets a thirtieth of the bytes."""
    worker = Worker()
    come(worker, 300, "a:1", "dear")
    come(worker, 300, "b:1", "cheap")
    spent = Counter[str]()
    for _ in range(300):
        worker.begin(1)
        done = worker.begun.pop()
        done.worked_s = 0.3 if done.caller.run == "dear" else 0.01
        spent[done.caller.run] += round(100 * done.worked_s)
        worker.admission.finish(done, served=True)
    assert spent["cheap"] == pytest.approx(290, abs=5)
    assert spent["dear"] == pytest.approx(spent["cheap"], rel=0.2)


def test_who_had_nothing_to_do_has_saved_nothing_up() -> None:
    worker = Worker()
    come(worker, 200, "a:1", "busy")
    for _ in range(100):
        worker.work(1.0)
    come(worker, 50, "b:1", "late")
    turns = [worker.work(1.0).caller.run for _ in range(40)]
    assert turns.count("late") == pytest.approx(20, abs=1)


def test_large_requests_one_at_a_time_get_no_more_than_a_share() -> None:
    worker = Worker()
    come(worker, 300, "a:1", "many")
    spent = Counter[str]()
    for _ in range(200):
        if not any(each.caller.run == "large" for each in worker.admission.waiting()):
            come(worker, 1, "b:1", "large", 50 * MB)
        worker.begin(1)
        done = worker.begun.pop()
        done.worked_s = done.num_bytes / MB
        spent[done.caller.run] += done.num_bytes
        worker.admission.finish(done, served=True)
    assert spent["large"] <= 1.5 * spent["many"]


def test_a_run_with_slow_answers_leaves_threads_to_others() -> None:
    worker = Worker(in_work=16)
    come(worker, 100, "a:1", "slow")
    while worker.admission.due:
        worker.begin(1)
    assert len(worker.begun) == 13
    come(worker, 1, "b:1", "quick")
    assert worker.admission.due
    assert worker.work().caller.run == "quick"
    worker.finish()
    assert worker.admission.due, "one ended, one may begin"


def test_names_are_not_remembered_for_ever() -> None:
    worker = Worker()
    for number in range(5000):
        come(worker, 1, f"10.0.{number % 1500}.1:5", f"run {number}")
        worker.work(0.01)
    admission = worker.admission
    assert len(admission._runs) <= MAX_REMEMBERED
    assert len(admission._hosts) <= MAX_REMEMBERED
    assert not admission._flows


def test_runs_that_wait_are_bounded_and_all_are_served() -> None:
    worker = Worker(10**6 * MB)
    for number in range(1000):
        come(worker, 1, f"10.0.0.{number % 250}:5", f"run {number}")
    assert len(worker.admission._flows) <= MAX_FLOWS + 1
    for _ in range(1000):
        worker.work(0.01)
    assert worker.unfinished == (0, 0)
    assert not worker.admission.due


@pytest.mark.parametrize(
    ("connection", "host"),
    [
        ("ipv4:10.0.0.1:5", "10.0.0.1"),
        ("10.0.0.1:5", "10.0.0.1"),
        ("ipv6:%5B::1%5D:5", "::/64"),
        ("::1:5", "::/64"),
        ("ipv6:[2001:db8::1]:5", "2001:db8::/64"),
        ("ipv6:[2001:db8::2]:9", "2001:db8::/64"),
        ("ipv6:[::ffff:10.0.0.1]:5", "10.0.0.1"),
        ("unix:", "unix"),
        ("", ""),
    ],
)
def test_the_host_of_a_connection(connection: str, host: str) -> None:
    assert Origin(connection).host == host


# -- deadlines


def paced(pace_bytes_per_s: int = MB) -> Worker:
    """Return a worker that has worked at a pace for long."""
    worker = Worker(burst_s=BURST_S)
    for _ in range(30):
        worker.serve(pace_bytes_per_s, 1.0)
    return worker


def test_what_would_not_be_done_in_time_is_refused_at_once() -> None:
    worker = paced()
    worker.let_in(9, "a:1")
    assert worker.comes(job("a:1", MB, deadline=worker.now + 10 / TIMELY_SHARE + 0.1)) is None
    refusal = worker.comes(job("a:1", MB, deadline=worker.now + 10 / TIMELY_SHARE))
    assert refusal is not None
    assert refusal.reason == (
        "at the pace of late it would take 11.00 s until the request is done, and the caller"
        " waits for 40.00 s more"
    )
    assert refusal.retry_after_s == pytest.approx(1.0, rel=0.01), "until it would be let in"
    assert worker.admission.refusing


def test_a_run_is_refused_for_its_own_backlog_and_not_for_anothers() -> None:
    worker = paced()
    worker.let_in(100, "a:1")
    for _ in range(5):
        assert worker.comes(job("b:1", MB, deadline=worker.now + 12 / TIMELY_SHARE)) is None
    assert worker.comes(job("b:1", MB, deadline=worker.now + 11 / TIMELY_SHARE)) is not None
    assert worker.comes(job("a:2", MB, deadline=worker.now + 8 / TIMELY_SHARE)) is None
    assert worker.comes(job("a:1", MB, deadline=worker.now + 100 / TIMELY_SHARE)) is not None


def test_few_are_let_in_whatever_their_deadline_so_that_the_pace_is_known() -> None:
    worker = paced()
    for _ in range(STANDING_REQUESTS):
        assert worker.comes(job("a:1", 10 * MB, deadline=worker.now + 0.1)) is None
    assert worker.comes(job("a:1", 10 * MB, deadline=worker.now + 0.1)) is not None


def test_who_was_refused_for_lateness_gets_a_short_queue_until_it_is_quiet() -> None:
    worker = paced()
    worker.let_in(20, "a:1")
    assert worker.comes(job("a:1", deadline=worker.now + 10)) is not None
    for _ in range(20 - STANDING_REQUESTS):
        worker.work()
        assert worker.comes(job("a:1", deadline=worker.now + 1000)) is not None
    worker.work()
    assert worker.comes(job("a:1", deadline=worker.now + 1000)) is None
    worker.now += QUIET_BURSTS * BURST_S
    assert worker.comes(job("a:1", deadline=worker.now + 1000)) is None


def test_work_is_not_begun_that_cannot_be_done_in_time() -> None:
    worker = paced()
    too_late = worker.admission.too_late
    assert too_late(10_000, worker.now + 0.009)
    assert not too_late(10_000, worker.now + 0.011)
    assert not too_late(10_000, None)
    assert too_late(1, worker.now - 0.001)
    assert not too_late(100 * MB, worker.now + 0.1), "the pace of late may be over"


def test_requests_whose_bytes_are_coming_count_as_if_they_waited() -> None:
    worker = flooded(0.3)
    assert not worker.lets_in("one")
    worker.begin(FLOOD_REQUESTS - 1)
    with contextlib.ExitStack() as stack:
        for number in range(10):
            refusal = stack.enter_context(worker.admission.coming(Origin("one")))
            assert (refusal is None) is (number < 2)
    assert worker.closed("one") is None, "all of them have come"
    worker.begin(1)
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(worker.admission.coming(Origin("one")))
        assert worker.lets_in("one"), "what never comes keeps nobody out"


def test_connections_that_flood_together_are_known_as_soon_as_the_first() -> None:
    worker = Worker(burst_s=BURST_S)
    worker.let_in(FLOOD_REQUESTS, "host:1")
    worker.now += 0.3
    worker.let_in(FLOOD_REQUESTS // 2, "host:2")
    worker.let_in(FLOOD_REQUESTS // 2 - 1, "host:3")
    worker.let_in(FLOOD_REQUESTS // 2, "another:1")
    assert worker.lets_in("host:2"), "no connection was refused so far"
    assert not worker.lets_in("host:1")
    assert not worker.lets_in("host:2")
    assert worker.lets_in("host:3"), "a trainer's client may have as many under way"
    assert worker.lets_in("another:1")


def full_of(connections: int, num_bytes: int, limit_bytes: int) -> Worker:
    """Return a worker that can let in no more of the requests of so many connections."""
    worker = Worker(limit_bytes, BURST_S)
    while all(worker.lets_in(f"host:{number}", num_bytes) for number in range(connections)):
        pass
    return worker


@pytest.mark.parametrize(("num_bytes", "pause_s"), [(MB, 0.02), (5 * MB, 0.2)])
def test_who_goes_on_sending_what_is_refused_for_its_bytes_floods(
    num_bytes: int, pause_s: float
) -> None:
    # Eight connections, none of which has so many waiting as make a flood.
    worker = full_of(8, num_bytes, 250 * MB)
    each = worker.admission.unfinished_requests // 8
    assert each < FLOOD_REQUESTS
    for _ in range(FLOOD_REQUESTS):
        assert "above its share" in worker.refusal("host:0", num_bytes).reason
        worker.now += pause_s
    worker.begin(worker.admission.unfinished_requests // 2)
    while worker.begun:
        worker.finish()
    assert worker.admission.flooded
    assert not worker.lets_in("host:0"), "less is let in than there is room for"
    assert worker.lets_in("other:0")


def test_a_burst_beyond_the_bytes_that_heeds_the_hints_is_no_flood() -> None:
    worker = full_of(8, 5 * MB, 250 * MB)
    for _ in range(4):
        hints = [worker.refusal("host:0", 5 * MB).retry_after_s for _ in range(50)]
        worker.now += min(hints)
    worker.begin(1)
    worker.finish()
    assert worker.lets_in("host:0", 5 * MB)


def test_what_has_no_room_is_refused_before_its_bytes_come() -> None:
    worker = full_of(8, MB, 100 * MB)
    assert worker.admission.refusing
    refusal = worker.closed("host:0")
    assert refusal is not None
    assert "would be above its share" in refusal.reason
    assert worker.closed("other:0") is None, "its request may be a small one"
    assert not worker.admission.flooded, "who waits for replies may fill its share"
    worker.begin(8)
    while worker.begun:
        worker.finish()
    assert worker.closed("host:0") is None


def test_a_flood_that_was_held_up_is_not_let_in_anew() -> None:
    worker = flooded(0.3)
    assert not worker.lets_in("one")
    worker.begin(FLOOD_REQUESTS)
    worker.now += 4 * BURST_S  # its sender was stopped, say
    worker.let_in(STANDING_REQUESTS, "one")
    assert not worker.lets_in("one")


def test_connections_that_were_turned_away_are_not_remembered_for_ever() -> None:
    worker = Worker(100, BURST_S)
    worker.let_in(3, "a:1", 25)
    for port in range(3 * MAX_REMEMBERED):
        assert not worker.lets_in(f"a:{port}", 1)
    assert len(worker.admission._turned_away_of) <= MAX_REMEMBERED


def test_a_flooding_connection_does_not_queue_up_for_being_received() -> None:
    worker = flooded(0.3)
    assert not worker.lets_in("one")
    worker.begin(FLOOD_REQUESTS)
    with contextlib.ExitStack() as stack:
        refusals = [stack.enter_context(worker.admission.coming(Origin("one"))) for _ in range(9)]
        assert [refusal is None for refusal in refusals] == [True] * 3 + [False] * 6
        assert worker.closed("two") is None, "others are let in"
        assert worker.lets_in("one"), "what has come is let in before what is coming"


def test_a_core_that_other_programs_take_is_not_given_away_each_time() -> None:
    now, gone_s, given = 0.0, 0.001, []

    def give() -> None:
        nonlocal now
        given.append(now)
        now += gone_s

    yielding = Yielding(give, lambda: now)
    for _ in range(100):
        yielding()
    assert len(given) == 100, "the event loop has a millisecond to do each time"
    gone_s = 0.02
    for _ in range(100):
        yielding()
        now += 0.005
    assert len(given) < 110
    gone_s = 0.001
    now += KEPT_S
    yielding()
    yielding()
    assert given[-2:] == pytest.approx([now - 0.002, now - 0.001])


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
                    assert self.go_on.wait(60)
            self.entered.set()
            assert self._leave.wait(60)

    def end(self) -> None:
        assert self.entered.wait(60)
        self._leave.set()
        self._thread.join(60)


def test_no_more_have_a_turn_than_there_are() -> None:
    slots = Slots(2)
    threads = [Computing(slots) for _ in range(3)]
    wait_for(lambda: sum(thread.entered.is_set() for thread in threads) == 2)
    [third] = [thread for thread in threads if not thread.entered.is_set()]
    assert not third.entered.wait(0.3)
    next(thread for thread in threads if thread is not third).end()
    assert all(thread.entered.wait(60) for thread in threads)
    for thread in threads:
        thread.end()


def test_a_lent_turn_is_anothers_and_its_lender_comes_before_who_waits_for_a_first_one() -> None:
    slots = Slots(1)
    lender = Computing(slots, lends=True)
    assert lender.lent.wait(60)
    first = Computing(slots)
    assert first.entered.wait(60), "it has the lent turn"
    second = Computing(slots)
    lender.go_on.set()
    assert not lender.entered.wait(0.3), "the first has the turn"
    assert not second.entered.is_set()
    first.end()
    assert lender.entered.wait(60)
    assert not second.entered.is_set()
    lender.end()
    second.end()  # it was given back


def test_no_turn_stays_free_while_somebody_waits() -> None:
    """Two turns come back while a lender waits: one is the lender's, one the newcomer's."""
    slots = Slots(2)
    holders = [Computing(slots) for _ in range(2)]
    assert all(holder.entered.wait(60) for holder in holders)
    newcomer = Computing(slots)
    assert not newcomer.entered.wait(0.1)
    # A lender that wants its turn back and is slow to come for it.
    slots._lenders += 1
    for holder in holders:
        holder.end()
    assert newcomer.entered.wait(60)
    slots._lenders -= 1
    newcomer.end()


def test_who_has_no_turn_lends_none() -> None:
    slots = Slots(1)
    with slots.lent():
        pass
    first = Computing(slots)
    assert first.entered.wait(60)
    second = Computing(slots)
    assert not second.entered.wait(0.3)
    first.end()
    second.end()


class Pool:
    """Threads with a queue of their own, into which nothing is refused."""

    def __init__(self, number: int, slots: Slots) -> None:
        self.queue = Admission(10**12, math.inf, number)
        self.threads = WorkingThreads(number, slots, self.queue)

    def submit(self, work: Callable[[], Any], run: str = "") -> Future[Any]:
        job = Job(work, 1, Origin(run=run))
        assert self.queue.admit(job) is None
        job.add_done_callback(partial(self.queue.finish, served=True))
        self.threads.wake()
        return job

    @property
    def idle(self) -> list[threading.Lock]:
        return self.threads._idle

    def close(self) -> None:
        self.threads.close()


@pytest.fixture
def threads() -> Iterator[Pool]:
    """Four threads that share one turn."""
    working = Pool(4, Slots(1))
    yield working
    working.close()


class LongWork:
    """Work that has begun and lasts until it is let go."""

    def __init__(self, threads: Pool) -> None:
        begun, self.let_go = threading.Event(), threading.Event()

        def work() -> None:
            begun.set()
            assert self.let_go.wait(60)

        self.done = threads.submit(work)
        assert begun.wait(60)


def test_work_is_begun_in_order_of_arrival(threads: Pool) -> None:
    first = LongWork(threads)
    begun: list[int] = []
    futures = [threads.submit(partial(begun.append, number)) for number in range(200)]
    first.let_go.set()
    for future in futures:
        future.result(60)
    assert begun == list(range(200))


def test_of_idle_threads_the_one_that_worked_last_works_next() -> None:
    threads = Pool(2, Slots(2))
    works = [LongWork(threads), LongWork(threads)]

    def rest(number: int) -> bool:
        return len(threads.idle) == number

    for number, work in enumerate(works, start=1):
        work.let_go.set()
        work.done.result(60)
        wait_for(partial(rest, number))
    latest = threads.idle[-1]
    last = LongWork(threads)
    assert latest not in threads.idle and len(threads.idle) == 1
    last.let_go.set()
    threads.close()


def test_closing_ends_the_threads_that_rest() -> None:
    before = set(threading.enumerate())

    def working() -> int:
        return len(set(threading.enumerate()) - before)

    threads = Pool(3, Slots(3))
    works = [LongWork(threads) for _ in range(3)]
    assert working() == 3
    for work in works[1:]:
        work.let_go.set()
    wait_for(lambda: len(threads.idle) == 2)
    threads.close()
    wait_for(lambda: working() == 1)
    works[0].let_go.set()
    wait_for(lambda: working() == 0)


def test_what_work_returns_or_raises_is_its_submitters(threads: Pool) -> None:
    def fail() -> None:
        raise ValueError("of its own")

    failed = threads.submit(fail)
    assert threads.submit(lambda: 7).result(60) == 7
    with pytest.raises(ValueError, match="of its own"):
        failed.result(60)


def test_what_is_cancelled_before_its_turn_is_not_begun(threads: Pool) -> None:
    first = LongWork(threads)
    begun: list[str] = []
    left, stayed = (threads.submit(partial(begun.append, name)) for name in ("left", "stayed"))
    assert left.cancel()
    first.let_go.set()
    stayed.result(60)
    assert begun == ["stayed"]


def test_the_memory_of_work_that_failed_is_free_when_nobody_waits(threads: Pool) -> None:
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
        assert threads.submit(lambda: True).result(60)
        assert gone.wait(60)
    finally:
        gc.enable()


def test_closing_drops_what_has_not_begun_and_takes_nothing_more(threads: Pool) -> None:
    first = LongWork(threads)
    waiting = [threads.submit(lambda: None) for _ in range(10)]
    threads.close()
    for future in waiting:
        with pytest.raises(CancelledError):
            future.result(60)
    with pytest.raises(RuntimeError):
        threads.submit(lambda: None)
    first.let_go.set()
    first.done.result(60)
