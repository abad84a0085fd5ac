"""The processes that are measured against each other, started as their users start them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.harness.measure import REPOSITORY

STOP_S = 40.0


@contextlib.contextmanager
def listening(command: Sequence[str], log: Path, **environment: str) -> Iterator[str]:
    """Start a process that prints ``listening on HOST:PORT``; give its address, and end it.

    Raises RuntimeError, with what it wrote to ``log``, where it does not come to listen.
    """
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=REPOSITORY,
            env={**os.environ, **environment},
        )
    assert process.stdout is not None
    try:
        with process.stdout:
            line = process.stdout.readline()
            if not line.startswith("listening on "):
                raise RuntimeError(f"{' '.join(command)}: {log.read_text(encoding='utf-8')}")
            yield line.split()[-1]
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def reward_server(dataset: Path, scratch: Path, *, workers: int, threads: int) -> Iterator[str]:
    """Start ``consensuspr serve``; give its address.

    ``threads`` is how many match in each worker.
    """
    command = [
        *(sys.executable, "-m", "consensuspr.cli", "serve", "--dataset", str(dataset)),
        *("--address", "127.0.0.1:0", "--workers", str(workers)),
    ]
    log = scratch / f"server-{workers}-{threads}.log"
    with listening(command, log, CONSENSUSPR_THREADS=str(threads)) as address:
        yield address


def module(name: str, *arguments: str, interpreter: str = sys.executable) -> list[str]:
    """Return the command that runs a module of this package."""
    return [interpreter, "-m", f"benchmarks.suites.service.{name}", *arguments]


@contextlib.contextmanager
def on_one_core() -> Iterator[None]:
    """Keep this process, and all that it starts meanwhile, on one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
