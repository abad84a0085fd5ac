"""A child and its parent: orders, the report, the end of either."""

from __future__ import annotations

import os
import signal
import socket
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.server.processes import (
    MAX_WAITING_BYTES,
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
        children.append(Child("child_of_a_test", payload, {"PYTHONPATH": str(tmp_path)}))
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


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("os._exit(7)", "exited with code 7"),
        ("os.kill(os.getpid(), 9)", "was ended by SIGKILL"),
    ],
)
def test_a_child_that_dies_without_a_word(start: Start, body: str, told: str) -> None:
    child = start(body)
    assert child.describe_exit() == "is running"
    wait_for(lambda: child.exit_code() is not None)
    assert (child.report(), child.describe_exit()) == (None, told)


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


def test_a_child_that_reads_nothing_does_not_hold_its_parent_up(start: Start) -> None:
    child = start(
        """
        parent.listen(lambda: os._exit(0), lambda order: parent.send({"answer": order["id"]}))
        parent.report_ready()
        time.sleep(60)
        """
    )
    assert child.first_report() == Report(True)
    os.kill(child.pid, signal.SIGSTOP)
    large = "x" * (MAX_WAITING_BYTES // 2)
    sent = [child.send({"id": number, "order": large}) for number in range(8)]
    assert sent[0] and not sent[-1], "what is held for the child is bounded"
    os.kill(child.pid, signal.SIGCONT)
    taken: list[Message] = []

    def all_answered() -> bool:
        taken.extend(child.take())
        return len(taken) == sum(sent)

    wait_for(all_answered)
    assert taken == [{"answer": number} for number in range(sum(sent))]
    assert child.send({"id": 8, "order": large})


def test_a_worker_asks_its_supervisor_and_obeys_it(start: Start) -> None:
    child = start(
        """
        import asyncio
        from consensuspr.server.worker import Supervisor

        async def main():
            supervisor = Supervisor(parent, lambda: os._exit(0))
            async def add(order):
                reply = await supervisor.ask("multiply", {"numbers": order["numbers"]}, 20)
                return {"sum": sum(order["numbers"]), "product": reply["product"]}
            async def refuse(order):
                await supervisor.ask("nonsense", {}, 20)
            await supervisor.obey({"add": add, "refuse": refuse})
        asyncio.run(main())
        """
    )
    taken: list[Message] = []

    def came() -> bool:
        taken.extend(child.take())
        return bool(taken)

    child.send({"id": 7, "order": "add", "numbers": [2, 5]})
    wait_for(came)
    assert taken.pop() == {"ask": "multiply", "id": 1, "numbers": [2, 5]}
    child.send({"reply": 1, "product": 10})
    wait_for(came)
    assert taken.pop() == {"answer": 7, "sum": 7, "product": 10}
    child.send({"id": 8, "order": "refuse"})
    wait_for(came)
    assert taken.pop() == {"ask": "nonsense", "id": 2}
    child.send({"reply": 2, "error": "the supervisor cannot nonsense"})
    wait_for(came)
    assert taken.pop() == {"answer": 8, "error": "the supervisor cannot nonsense"}


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
