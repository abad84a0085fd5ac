"""Working threads: in order of arrival, whichever thread gets a turn."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import CancelledError
from functools import partial

import pytest

from consensuspr.server.admission import Slots, WorkingThreads


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
