"""Measurements in a process each: what they tell, and how they are started.

A process that has loaded one dataset is no place to measure the next: what Python keeps for
itself would count as nothing the second time.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pydantic import BaseModel

from benchmarks.harness.measure import REPOSITORY, Resident


class Loaded(BaseModel):
    """A dataset loaded from a file or mapped from a prepared one.

    Attributes:
        seconds: until it can score.
        cpu_seconds: of them, those that this process computed; without its children.
        before: memory once all is imported.
        after: memory with the dataset loaded.
        read: memory once every record was read, as after a long training.
        peak: most bytes that were resident up to ``after``.
        digest: of the content.
    """

    seconds: float
    cpu_seconds: float
    before: Resident
    after: Resident
    read: Resident
    peak: int
    digest: str


class Touched(BaseModel):
    """Microseconds until the matcher of a problem is at hand.

    ``first_…`` is of the first time (looked up, unpacked, compiled), ``later_…`` of the second;
    ``matcher_bytes`` is what a matcher takes on average.
    """

    first_p50: float
    first_p99: float
    later_p50: float
    later_p99: float
    matcher_bytes: float


def load(path: Path) -> Loaded:
    """Load a dataset in a fresh process and return what it took."""
    return Loaded.model_validate_json(_run("load", path))


def touch(path: Path, count: int, seed: int) -> Touched:
    """Touch problems of a dataset of ``count`` in a fresh process."""
    return Touched.model_validate_json(_run("touch", path, count, seed))


def _run(*arguments: object) -> str:
    command = [sys.executable, "-m", "benchmarks.suites.problems.child", *map(str, arguments)]
    return subprocess.run(
        command, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
