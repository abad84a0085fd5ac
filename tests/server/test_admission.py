"""Which requests a worker accepts, in which order it works on them, and with how many threads."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest

from consensuspr.errors import InvalidRequest
from consensuspr.server.admission import (
    FIELD_BYTES,
    MAX_RETRY_S,
    MIN_RETRY_S,
    REQUEST_OVERHEAD_BYTES,
    Admission,
    Job,
    ScoringThreads,
    charge,
    field_table,
)
from consensuspr.v1 import scoring_pb2 as pb
from tests.processes import wait_for
from tests.server.conftest import request_of


def job(num_bytes: int, run: str = "", work: Callable[[], object] = lambda: None) -> Job:
    return Job(work, num_bytes, run)


def end(admission: Admission, ended: Job) -> None:
    """End the work and the call of a job that was taken."""
    ended.set_result(None)
    admission.call_ended(ended)


@pytest.mark.parametrize(
    ("request_", "fields"),
    [(pb.ScoreRequest(), 0), (request_of(b"abc", b"def", epoch=3), 8)],
)
def test_a_request_is_charged_for_its_bytes_and_fields(
    request_: pb.ScoreRequest, fields: int
) -> None:
    raw = request_.SerializeToString()
    table = field_table(pb.ScoreRequest.DESCRIPTOR)
    assert charge(raw, table, 9) == 2 * len(raw) + FIELD_BYTES * fields + REQUEST_OVERHEAD_BYTES
    assert charge(raw, table, fields) == charge(raw, table, 9)
    if fields:
        with pytest.raises(InvalidRequest, match="a request has at most"):
            charge(raw, table, fields - 1)


def test_requests_are_accepted_up_to_the_limit() -> None:
    admission = Admission(100)
    large = job(250, "a")
    assert admission.admit(large) is None, "a request on its own is accepted"
    assert admission.admit(job(1, "b")) is not None
    assert admission.take() is large
    end(admission, large)
    assert admission.admit(job(60, "a")) is None
    assert admission.refusal(40, "b") is None
    refused = admission.admit(job(41, "b"))
    assert refused is not None
    assert refused.reason == (
        "the queue is full: 60 of 100 bytes are in use, and the request needs 41"
    )
    assert (admission.unfinished_bytes, admission.unfinished_requests) == (60, 1)
    refused = admission.admit(job(16, "a"))
    assert refused is not None and "the run's share of the queue is full" in refused.reason


@pytest.mark.parametrize("work_first", [True, False])
def test_a_request_counts_until_its_work_and_its_call_have_ended(work_first: bool) -> None:
    admission = Admission(100)
    single = job(60)
    assert admission.admit(single) is None
    assert admission.take() is single
    ends = [lambda: single.set_result(None), lambda: admission.call_ended(single)]
    ends[not work_first]()
    assert (admission.unfinished_bytes, admission.unfinished_requests) == (60, 1)
    ends[work_first]()
    assert (admission.unfinished_bytes, admission.unfinished_requests) == (0, 0)


def test_a_cancelled_request_leaves_the_queue() -> None:
    admission = Admission(100)
    first, second = job(40), job(30)
    for single in (first, second):
        assert admission.admit(single) is None
    first.cancel()
    admission.call_ended(first)
    assert admission.unfinished_bytes == 30
    assert admission.take() is second
    assert admission.take() is None


def test_runs_take_turns() -> None:
    admission = Admission(10_000)
    runs = ["big"] * 6 + ["small"] * 2 + [""]
    for run in runs:
        assert admission.admit(job(1, run)) is None
    order = [taken.run for taken in iter(admission.take, None)]
    assert order == ["big", "small", "", "big", "small", "big", "big", "big", "big"]


@pytest.mark.parametrize(
    ("waited_s", "hint_s"), [(0.0, MIN_RETRY_S), (3.0, 1.5), (60.0, MAX_RETRY_S)]
)
def test_the_hint_is_half_the_time_in_the_queue(waited_s: float, hint_s: float) -> None:
    now = 0.0
    admission = Admission(100, lambda: now)
    assert admission.admit(job(50)) is None
    now = waited_s
    assert admission.take() is not None
    refused = admission.admit(job(90))
    assert refused is not None
    assert refused.retry_after_s == hint_s


@contextlib.contextmanager
def pool(number: int, cores: int) -> Iterator[tuple[ScoringThreads, Callable[[Job], None]]]:
    admission = Admission(10_000)
    threads = ScoringThreads(number, cores, admission)

    def run(queued: Job) -> None:
        assert admission.admit(queued) is None
        threads.run_next()

    yield threads, run
    threads.close()


@pytest.mark.parametrize(("number", "cores", "at_a_time"), [(1, 4, 1), (6, 2, 2)])
def test_threads_and_cores_bound_what_computes(number: int, cores: int, at_a_time: int) -> None:
    gate = threading.Event()
    entered = threading.Semaphore(0)

    def work() -> str:
        entered.release()
        assert gate.wait(60)
        return "done"

    with pool(number, cores) as (_, run):
        jobs = [job(1, work=work) for _ in range(6)]
        for each in jobs:
            run(each)
        for _ in range(at_a_time):
            assert entered.acquire(timeout=60)
        assert not entered.acquire(timeout=0.1)
        gate.set()
        assert [each.result(60) for each in jobs] == ["done"] * 6


def test_a_job_that_waits_lends_its_core() -> None:
    asked, answered = threading.Event(), threading.Event()
    with pool(2, 1) as (threads, run):

        def ask() -> str:
            with threads.core_lent():
                asked.set()
                assert answered.wait(60)
            return "answer"

        waiting, computing = job(1, work=ask), job(1, work=lambda: "computed")
        run(waiting)
        assert asked.wait(60)
        run(computing)
        assert computing.result(60) == "computed"
        answered.set()
        assert waiting.result(60) == "answer"
        with threads.core_lent():
            pass  # a thread that holds no core lends none


def test_closing_cancels_what_waits() -> None:
    gate, entered = threading.Event(), threading.Event()

    def work() -> None:
        entered.set()
        assert gate.wait(60)

    with pool(1, 1) as (threads, run):
        jobs = [job(1, work=work), job(1)]
        for each in jobs:
            run(each)
        assert entered.wait(60)
        threads.close()
        gate.set()
        assert jobs[1].cancelled()
        assert jobs[0].result(60) is None
        with pytest.raises(RuntimeError):
            threads.run_next()


def test_a_failed_job_is_freed_when_nobody_waits() -> None:
    class Request:
        pass

    request = Request()
    freed = weakref.ref(request)

    def fail(of: Request) -> None:
        raise ValueError("a failure of the work")

    with pool(1, 1) as (_, run):
        gc.collect()
        gc.disable()
        try:
            failing = job(1, work=lambda held=request: fail(held))  # type: ignore[misc]
            run(failing)
            with pytest.raises(ValueError, match="of the work"):
                failing.result(60)
            del request, failing
            wait_for(lambda: freed() is None)
        finally:
            gc.enable()
