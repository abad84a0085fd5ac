"""Other processes: their descendants, waiting for them, and ending them with this one.

Run as a script, it waits until a process has ended and kills whatever that has started.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import psutil


def wait_for(
    condition: Callable[[], object],
    process: subprocess.Popen[Any] | None = None,
    most_s: float = 60,
) -> None:
    """Return when a condition holds; fail if it takes too long, or a process ends meanwhile."""
    deadline = time.monotonic() + most_s
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Say whether a process runs; zombies do not, whom nobody collects in some containers."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def command_line(process: psutil.Process) -> list[str]:
    """Return the words that a process was started with; a zombie and one that is gone have none."""
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:  # which a zombie is, too
        return []


def wait_until_gone(pids: Iterable[int], most_s: float = 60) -> None:
    wait_for(lambda: not any(map(is_alive, pids)), most_s=most_s)


def descendants(pid: int) -> list[int]:
    """Return what a process has started, and what that has."""
    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


def end_those_with(variable: str, value: str) -> int:
    """Kill every process that has a variable of this value in its environment; return how many.

    Neither a process group nor a parent names all that a process has started: workers have groups
    of their own, and one that is stopped does not notice that its parent is gone.
    """
    killed = 0
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(variable) == value:
                process.kill()
                killed += 1
    return killed


# Names a test run in the environment of everything that it starts.
RUN_VARIABLE = "TEST_RUN_OF_CONSENSUSPR"
_reapers: list[subprocess.Popen[bytes]] = []


def end_descendants_with_this_process() -> None:
    """Have whatever this process starts from now on killed when it ends, even by SIGKILL.

    A worker of pytest-xdist belongs to the run of the process that started it.
    """
    if RUN_VARIABLE not in os.environ:
        run = secrets.token_hex(8)
        command = [sys.executable, __file__, str(os.getpid()), run]
        _reapers.append(subprocess.Popen(command, start_new_session=True))
        os.environ[RUN_VARIABLE] = run


def _reap(parent: int, run: str) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    while end_those_with(RUN_VARIABLE, run):
        time.sleep(0.1)


if __name__ == "__main__":
    _reap(int(sys.argv[1]), sys.argv[2])
