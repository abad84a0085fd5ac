"""Measuring in the environment that has verl and Ray, from one that may not.

A suite that needs them hands over its function as ``MODULE:FUNCTION``; ``python -m
benchmarks.suites`` runs it in that environment's interpreter.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from benchmarks.harness.measure import REPOSITORY, Context
from benchmarks.harness.results import SuiteResult

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


def measured(function: str, suite: str, title: str, context: Context) -> SuiteResult:
    """Return what ``function`` finds in the environment with verl.

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
    path = context.scratch / "result.json"
    command = [str(python), "-m", "benchmarks.suites", function, "--result", str(path)]
    # Short, because a socket's path below it has little room.
    with tempfile.TemporaryDirectory(prefix="cpr", dir="/tmp") as folder:
        ended = subprocess.run(
            [*command, *context.words()],
            cwd=REPOSITORY,
            env={"RAY_TMPDIR": folder, **os.environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # Ray writes there
            check=False,
        )
    if ended.returncode:
        raise RuntimeError(f"{function} ended with exit code {ended.returncode}")
    return SuiteResult.model_validate_json(path.read_bytes())
