"""What a process of a run writes down."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from consensuspr.client.training import SampleLog
from consensuspr.errors import InputError
from consensuspr.events import EventLog
from tests.rows import read_rows


def test_every_row_is_a_line_on_disk_at_once(tmp_path: Path) -> None:
    log = SampleLog(tmp_path / "new" / "folder")
    log.write({"problem_id": "p\n1", "reward": 0.5})
    log.write({"problem_id": "\ud800", "reward": 1.0})
    rows = read_rows(log.path)
    assert [row["problem_id"] for row in rows] == ["p\n1", "\ud800"]
    assert all(row["time"] > 1.7e9 for row in rows)
    log.close()
    log.close()


def test_a_log_that_cannot_be_written_is_found_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"score_log: cannot write .*file"):
        SampleLog(tmp_path / "file")


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
