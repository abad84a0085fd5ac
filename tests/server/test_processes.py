"""A child and its parent: orders, the report, the end of either."""

from __future__ import annotations

import asyncio
import os
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.server.processes import Child, Message
from tests.processes import wait_until_gone

Start = Callable[..., Awaitable[Child]]


@pytest.fixture
def received() -> list[Message]:
    """The messages of children that are neither reports nor heartbeats nor answers."""
    return []


@pytest_asyncio.fixture
async def start(tmp_path: Path, received: list[Message]) -> Any:
    """Start a child with a body of its own, after ``parent = Parent()``."""
    children: list[Child] = []

    async def start(body: str, **payload: Any) -> Child:
        program = "import asyncio, os, sys, subprocess, time\n"
        program += "from consensuspr.errors import *\n"
        program += "from consensuspr.server.processes import Parent\nparent = Parent()\n"
        (tmp_path / "child_of_a_test.py").write_text(program + textwrap.dedent(body))
        path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        child = await Child.start(
            "child_of_a_test", payload, {"PYTHONPATH": path}, lambda _, m: received.append(m)
        )
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("assert parent.payload == {'n': 3, 's': 'ü'}\nparent.report_ready()", None),
        ("parent.report_failure(InputError('no such file'))", InputError("no such file")),
        ("parent.report_failure(ConsensusPRError('no port'))", ConsensusPRError("no port")),
        ("os._exit(3)", ConsensusPRError("exited with code 3 before it was ready")),
        ("os.kill(os.getpid(), 9)", ConsensusPRError("was killed by SIGKILL before it was ready")),
    ],
)
async def test_a_child_gets_its_payload_and_reports(
    start: Start, body: str, error: Exception | None
) -> None:
    child = await start(body, n=3, s="ü")
    if error is None:
        await child.ready()
    else:
        with pytest.raises(type(error), match=str(error)):
            await child.ready()
    assert await child.ended(60)


async def test_descendants_of_a_child_die_with_it(start: Start, received: list[Message]) -> None:
    child = await start(
        """
        other = subprocess.Popen(["sleep", "60"])
        parent.send({"pid": other.pid})
        parent.report_ready()
        time.sleep(60)
        """
    )
    await child.ready()
    child.kill()
    await asyncio.to_thread(wait_until_gone, [received[0]["pid"]])
    child.kill()  # again does no harm
    assert not child.send({"order": "none"})


async def test_orders_are_answered_while_the_child_runs(start: Start) -> None:
    child = await start(
        """
        def answer(order):
            parent.send({"alive": True})
            parent.send({"answer": order["id"], "sum": sum(order["numbers"])})
        parent.listen(lambda: os._exit(0), answer)
        assert sys.stdin.read() == "", "nobody else reads what the parent sends"
        time.sleep(60)
        """
    )
    for numbers in ([1, 2], list(range(100_000))):
        answer = await child.order({"order": "add", "numbers": numbers})
        assert answer is not None and answer["sum"] == sum(numbers)
    assert child.heartbeats == 2
    open_order = asyncio.create_task(child.order({"order": "add", "numbers": ["wrong"]}))
    await asyncio.sleep(0)
    child.kill()
    assert await open_order is None, "a child that ends gives no answer"


async def test_long_metrics_arrive_and_the_end_of_the_parent_is_noticed(
    start: Start, received: list[Message]
) -> None:
    child = await start(
        """
        from consensuspr.server.worker import Supervisor
        class Metrics:
            def samples(self):
                return "x" * 5_000_000
        async def main():
            await Supervisor(parent, lambda: os._exit(5)).beat(Metrics())
        asyncio.run(main())
        """
    )
    while child.heartbeats < 2 or not received:
        await asyncio.sleep(0.05)
    assert len(received[0]["metrics"]) == 5_000_000
    assert child.exit_code() is None
    child._writer.close()
    assert await child.ended(60)
    assert child.describe_exit() == "exited with code 5"
