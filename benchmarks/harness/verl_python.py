"""Measuring in the environment that has verl and Ray, from one that may not.

A suite that needs them hands over a function of a module that either interpreter can import.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness.results import SuiteResult
from benchmarks.measure import REPOSITORY, Context
from benchmarks.processes import fresh

VARIABLE = "CONSENSUSPR_VERL_PYTHON"
MAKE = "make .venv-verl-0.9.1/.installed"
_DEFAULT = REPOSITORY / ".venv-verl-0.9.1" / "bin" / "python"


def interpreter() -> Path | None:
    """Return the Python that has verl: the variable's, else the repository's, else None.

    Raises:
        FileNotFoundError: the variable names a file that does not exist.
    """
    named = os.environ.get(VARIABLE)
    if named is None:
        return _DEFAULT if _DEFAULT.exists() else None
    if not Path(named).exists():
        raise FileNotFoundError(f"{VARIABLE} names {named}, which does not exist")
    return Path(named)


def measured(
    measure: Callable[[Context], SuiteResult], suite: str, title: str, context: Context
) -> SuiteResult:
    """Return what ``measure`` finds in the environment with verl.

    ``suite`` and ``title`` are for a result that says why there is none.

    Raises:
        RuntimeError: it ended without a result; it has said why on standard error.
    """
    python = interpreter()
    if python is None:
        return SuiteResult(
            suite=suite,
            title=title,
            skipped=f"needs verl 0.9.1 in its own environment: `{MAKE}` builds it, about 2 GB",
        )
    # Short, because a socket's path below it has little room.
    with tempfile.TemporaryDirectory(prefix="cpr", dir="/tmp") as folder:
        environment = {"RAY_TMPDIR": os.environ.get("RAY_TMPDIR", folder)}
        return fresh(measure, context, python=python, environment=environment)
