"""Troubles that come by the thousand."""

from __future__ import annotations

import itertools
import logging
from concurrent.futures import Future, ThreadPoolExecutor, wait

import pytest

from consensuspr.events import EventLog


def test_a_flood_is_counted_and_not_printed(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    counter = EventLog(logging.getLogger("test"), clock=lambda: now)
    for _ in range(250):
        counter.report("lost", "one was lost")
    now = 61.0
    counter.report("lost", "one was lost")
    counter.report("other", "something else")
    assert [record.message for record in caplog.records] == [
        "one was lost (lost: 1 so far in this process)",
        "one was lost (lost: 10 so far in this process)",
        "one was lost (lost: 100 so far in this process)",
        "one was lost (lost: 251 so far in this process)",
        "something else (other: 1 so far in this process)",
    ]


def test_a_second_thread_reports_during_the_first_event() -> None:
    second: list[Future[None]] = []
    times = itertools.count()

    def clock() -> float:
        if next(times) == 1:  # the first event is counted, and not yet logged
            second.append(threads.submit(counter.report, "lost", "one was lost"))
            wait(second, timeout=0.2)
        return 0.0

    counter = EventLog(logging.getLogger("test"), clock=clock)
    with ThreadPoolExecutor() as threads:
        counter.report("lost", "one was lost")
        second[0].result(60)
    assert counter.counts["lost"] == 2
