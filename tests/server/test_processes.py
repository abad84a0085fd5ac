"""A child and its parent: orders, the report, the end of either."""

from __future__ import annotations

import os
import select
import signal
import socket
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.server.processes import (
    Child,
    Message,
    Report,
    caught_signals,
)
from tests.processes import wait_for, wait_until_gone

Start = Callable[..., Child]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a child with a body of its own, after ``parent = Parent()``."""
    children: list[Child] = []

    def start(body: str, **payload: Any) -> Child:
        program = "import os, sys, subprocess, time\n"
        program += "from consensuspr.errors import *\n"
        program += "from consensuspr.server.processes import Parent\nparent = Parent()\n"
        (tmp_path / "child_of_a_test.py").write_text(program + textwrap.dedent(body))
        path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        children.append(Child("child_of_a_test", payload, {"PYTHONPATH": path}))
        return children[-1]

    yield start
    for child in children:
        child.kill()


@pytest.mark.parametrize(
    ("body", "report", "error"),
    [
        ("assert parent.payload == {'n': 3, 's': 'ü'}\nparent.report_ready()", Report(True), None),
        (
            "parent.report_failure(InputError('no such file'))",
            Report(False, "no such file", True),
            InputError("no such file"),
        ),
        (
            "parent.report_failure(ConsensusPRError('no port'))",
            Report(False, "no port", False),
            ConsensusPRError("no port"),
        ),
    ],
)
def test_a_child_gets_its_orders_and_reports_once(
    start: Start, body: str, report: Report, error: Exception | None
) -> None:
    child = start(body, n=3, s="ü")
    wait_for(lambda: child.report() is not None)
    assert child.report() == report
    wait_for(lambda: child.exit_code() is not None)
    assert child.describe_exit() == "exited with code 0"
    if error is not None:
        assert (type(report.error()), str(report.error())) == (type(error), str(error))


def test_what_a_child_started_dies_with_it(start: Start, tmp_path: Path) -> None:
    child = start(
        """
        other = subprocess.Popen(["sleep", "60"])
        open(parent.payload["path"], "w").write(f"{other.pid}\\n")
        time.sleep(60)
        """,
        path=str(tmp_path / "pid"),
    )
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    other = int((tmp_path / "pid").read_text())
    child.kill()
    wait_until_gone([other])
    child.kill()  # again does no harm
    assert not child.send({"order": "none"})


def test_a_child_learns_that_its_parent_is_gone(start: Start) -> None:
    child = start("parent.listen(lambda: os._exit(5))\nparent.report_ready()\ntime.sleep(60)")
    wait_for(lambda: child.report() is not None)
    assert child.exit_code() is None
    child.socket.shutdown(socket.SHUT_RDWR)
    wait_for(lambda: child.exit_code() is not None)
    assert child.describe_exit() == "exited with code 5"


def test_orders_are_answered_while_the_child_runs(start: Start) -> None:
    child = start(
        """
        def answer(order):
            parent.send({"alive": True})
            parent.send({"answer": order["id"], "sum": sum(order["numbers"])})
        parent.listen(lambda: os._exit(0), answer)
        parent.report_ready()
        assert sys.stdin.read() == "", "nobody else reads what the parent sends"
        time.sleep(60)
        """
    )
    assert child.send({"id": 1, "order": "add", "numbers": [1, 2]}), "also before it is ready"
    assert child.first_report() == Report(True)
    assert child.send({"id": 2, "order": "add", "numbers": list(range(100_000))})
    taken: list[Message] = []

    def both_came() -> bool:
        taken.extend(child.take())
        return len(taken) == 2

    wait_for(both_came)
    assert taken == [{"answer": 1, "sum": 3}, {"answer": 2, "sum": 4999950000}]
    assert child.heartbeats == 2


def test_heartbeats_and_long_metrics_arrive_when_the_supervisor_reads(start: Start) -> None:
    child = start(
        """
        import asyncio
        from consensuspr.server.worker import Supervisor
        class Metrics:
            def samples(self):
                return "x" * 5_000_000
        async def main():
            await Supervisor(parent, lambda: os._exit(0)).beat(Metrics())
        asyncio.run(main())
        """
    )
    select.select([child.socket], [], [], 60)
    taken: list[Message] = []

    def came() -> bool:
        taken.extend(child.take())
        return bool(taken) and child.heartbeats >= 2

    wait_for(came)
    assert len(taken[0]["metrics"]) == 5_000_000
    assert child.heartbeats < 15, "the process sends as soon as the socket takes more"


def test_signals_are_collected_while_a_block_lasts() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with caught_signals() as signals:
        assert signals.take() == []
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        taken: list[signal.Signals] = []

        def both_came() -> bool:
            taken.extend(signals.take())
            return len(taken) == 2

        wait_for(both_came)
        assert sorted(taken) == [signal.SIGINT, signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is before
