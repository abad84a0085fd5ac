"""A real server, started as users start it, on all cores or on some."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def serving(
    dataset: Path,
    scratch: Path,
    cores: set[int] | None = None,
    workers: int | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[tuple[str, int]]:
    """Run ``consensuspr serve`` and yield its address and process id.

    Args:
        dataset: to serve.
        scratch: folder for its log.
        cores: that it may use; None: those of this process.
        workers: processes; None: the server's default.
        settings: environment variables of the server.

    Raises:
        RuntimeError: it does not start; the text is its log's.
    """
    command = [sys.executable, "-m", "consensuspr.cli", "serve", "--dataset", str(dataset)]
    command += ["--address", "127.0.0.1:0", "--log-level", "warning"]
    command += [] if workers is None else ["--workers", str(workers)]
    log = scratch / "server.log"
    before = os.sched_getaffinity(0)
    with log.open("w") as lines:
        # A child has the cores of the thread that starts it.
        os.sched_setaffinity(0, cores or before)
        try:
            process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=lines,
                text=True,
                env={**os.environ, **(settings or {})},
            )
        finally:
            os.sched_setaffinity(0, before)
    assert process.stdout is not None  # a pipe was asked for
    try:
        line = process.stdout.readline()
        if not line.startswith("listening on "):
            raise RuntimeError(f"the server does not start: {log.read_text().strip()}")
        yield line.split()[-1], process.pid
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def processor_seconds(pid: int) -> float:
    """Return the processor time, in steps of 10 ms, of a process and of those below it."""
    own = Path(f"/proc/{pid}")
    # After the name, which may hold anything: user and system time are fields 14 and 15.
    fields = (own / "stat").read_text().rpartition(")")[2].split()
    spent = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    children = [path.read_text().split() for path in own.glob("task/*/children")]
    return spent + sum(processor_seconds(int(child)) for some in children for child in some)


@contextmanager
def confined(cores: set[int] | None) -> Iterator[None]:
    """Keep all threads of this process, and those that they start, on some cores."""
    before = os.sched_getaffinity(0)
    _move(cores or before)
    try:
        yield
    finally:
        _move(before)


def _move(cores: set[int]) -> None:
    for thread in os.listdir("/proc/self/task"):
        try:
            os.sched_setaffinity(int(thread), cores)
        except ProcessLookupError:
            continue  # it ended since
