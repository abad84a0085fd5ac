"""What counts as a suite, and a suite run as the runner runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks import suites


def test_suites_are_found_and_nothing_else() -> None:
    names = suites.names()
    assert {"core", "memory"} <= set(names)
    assert names == sorted(names)
    assert "__main__" not in names


def test_an_unknown_suite_is_bad_usage(repository: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.suites", "nope"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "no suite 'nope'; there are" in done.stderr
    assert done.stdout == ""
