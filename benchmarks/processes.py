"""Processes that are measured, started as their users start them, on all cores or on some."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from benchmarks.measure import REPOSITORY

STOP_S = 60.0


@contextmanager
def listening(
    command: Sequence[str],
    scratch: Path,
    environment: Mapping[str, str] | None = None,
    cores: set[int] | None = None,
) -> Iterator[tuple[str, int]]:
    """Run a process that prints ``listening on HOST:PORT``; yield its address and process id.

    Args:
        scratch: folder for its log.
        environment: variables beside those of this process.
        cores: that it may use; None: those of this process.

    Raises:
        RuntimeError: it does not start to listen; the message is its log.
    """
    command = (
        [*command] if cores is None else ["taskset", "-c", ",".join(map(str, cores)), *command]
    )
    with (
        tempfile.NamedTemporaryFile("w+", dir=scratch, suffix=".log", encoding="utf-8") as log,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=REPOSITORY,
            env={**os.environ, **(environment or {})},
        ) as process,
    ):
        assert process.stdout is not None  # a pipe was asked for
        try:
            line = process.stdout.readline()
            if not line.startswith("listening on "):
                log.seek(0)
                raise RuntimeError(f"{' '.join(command)} does not start: {log.read().strip()}")
            yield line.split()[-1], process.pid
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def serving(
    dataset: Path,
    scratch: Path,
    cores: set[int] | None = None,
    workers: int | None = None,
    settings: Mapping[str, str] | None = None,
) -> AbstractContextManager[tuple[str, int]]:
    """Run ``consensuspr serve`` and yield its address and process id.

    Args:
        workers: processes; None: the server's default.
        settings: environment variables of the server.
    """
    command = [sys.executable, "-m", "consensuspr.cli", "serve", "--address", "127.0.0.1:0"]
    command += ["--log-level", "warning", "--dataset", str(dataset)]
    command += [] if workers is None else ["--workers", str(workers)]
    return listening(command, scratch, settings, cores)


@contextmanager
def confined(cores: set[int]) -> Iterator[None]:
    """Keep all threads of this process, and all that they start, on some cores."""
    before = os.sched_getaffinity(0)
    _move(cores)
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


def on_one_core() -> AbstractContextManager[None]:
    """Keep this process, and all that it starts meanwhile, on one core."""
    return confined({max(os.sched_getaffinity(0))})
