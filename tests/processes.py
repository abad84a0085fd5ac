"""Other processes: what they started, whether they are gone, and waiting for what they do."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import psutil


def wait_for(
    condition: Callable[[], bool], process: subprocess.Popen[Any] | None = None, most_s: float = 60
) -> None:
    """Return when a condition holds; fail where it takes too long, or a process ends meanwhile."""
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


def end_those_with(variable: str, value: str) -> None:
    """Kill whatever has a variable of this value in its environment, stopped or not.

    Neither a process group nor a parent names all that a process has started: workers have groups
    of their own, and one that is stopped does not notice that its parent is gone.
    """
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(variable) == value:
                process.kill()
