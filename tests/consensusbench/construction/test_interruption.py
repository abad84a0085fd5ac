"""A real process that is killed or interrupted in the middle of a build, and the next one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from consensusbench.construction import build
from tests.consensusbench.conftest import journal_records
from tests.consensusbench.construction.conftest import (
    HERE,
    Listener,
    job,
    many,
    outputs,
    write_rows,
    written,
)

PROBLEMS = 24

SCRIPT = """
import sys
from pathlib import Path
from construction_toys import ToyExtractor, ToyRefiner
from consensusbench.construction import BuildJob, OutputPaths, build

folder = Path(sys.argv[1])
paths = OutputPaths(folder / "dataset.jsonl", folder / "dataset.audit.jsonl")
build(BuildJob((folder / "rollouts.jsonl",), paths, ToyExtractor(sleep_s=0.15), ToyRefiner(),
               folder / "problems.jsonl"))
"""


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Let children heed Ctrl-C also where these tests run in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with problems and rollouts."""
    problems, rollouts = many(PROBLEMS)
    write_rows(tmp_path / "problems.jsonl", problems)
    write_rows(tmp_path / "rollouts.jsonl", rollouts)
    return tmp_path


@contextmanager
def half_done(folder: Path, repository: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a build in a process group of its own and wait until some problems are extracted."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(repository), str(HERE), *sys.path])},
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until = time.monotonic() + 60
        while extracted(folder) < 5:
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.communicate()


def extracted(folder: Path) -> int:
    """Return how many problems the journal of a build holds."""
    journals = list((folder / "dataset.jsonl.partial").glob("extraction-*.jsonl"))
    return sum(len(journal_records(journal)) for journal in journals)


def test_a_killed_build_goes_on_where_it_was(folder: Path, repository: Path) -> None:
    with half_done(folder, repository) as process:
        process.kill()
        process.wait()
    assert not any(path.exists() for path in outputs(folder).all())
    left = extracted(folder)
    assert 5 <= left < PROBLEMS

    listener = Listener()
    report = build(
        job(folder, folder / "rollouts.jsonl", problems=folder / "problems.jsonl"), listener
    )
    assert listener.notes == [f"an earlier run left {left} extracted problems; going on"]
    assert report.resumed == left
    assert not (folder / "dataset.jsonl.partial").exists()
    clean = folder / "clean"
    clean.mkdir()
    build(job(clean, folder / "rollouts.jsonl", problems=folder / "problems.jsonl"))
    assert written(outputs(folder)) == written(outputs(clean))


def test_workers_end_with_a_killed_build(folder: Path, repository: Path) -> None:
    with half_done(folder, repository) as process:
        workers = children(process.pid)
        assert workers
        process.kill()
        process.wait()
        until = time.monotonic() + 30
        while any(map(alive, workers)) and time.monotonic() < until:
            time.sleep(0.05)
        assert not any(map(alive, workers))


def test_an_interrupt_keeps_what_is_done_and_leaves_no_worker(
    folder: Path, repository: Path
) -> None:
    with half_done(folder, repository) as process:
        workers = children(process.pid)
        # As a terminal does: to the whole group.
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert "KeyboardInterrupt" in said and said.count("Traceback") == 1
    assert not any(map(alive, workers))
    assert not any(path.exists() for path in outputs(folder).all())
    assert extracted(folder) >= 5


def children(pid: int) -> list[int]:
    """Return the ids of a process's children."""
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    found = [int(one) for one in listed.read_text().split()]
    # Workers are started by threads of the process.
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(one) for one in (task / "children").read_text().split()]
    return sorted(set(found))


def alive(pid: int) -> bool:
    """Say whether a process runs, zombies not counted."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_an_interrupted_command_says_how_it_goes_on(tmp_path: Path, repository: Path) -> None:
    problems, rollouts = many(1500)
    command = [
        sys.executable, "-m", "consensusbench.cli", "build",
        str(write_rows(tmp_path / "rollouts.jsonl", rollouts)), "--no-progress",
        "--problems", str(write_rows(tmp_path / "problems.jsonl", problems)),
        "--output", str(tmp_path / "dataset.jsonl"),
    ]  # fmt: skip
    path = os.pathsep.join([str(repository), *sys.path])
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while extracted(tmp_path) < 5:
            assert process.poll() is None
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert said.splitlines()[0] == "what is extracted is kept; the same command goes on from there"
    assert "Traceback" not in said
