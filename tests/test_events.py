"""Troubles that come by the thousand."""

from __future__ import annotations

import logging

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
