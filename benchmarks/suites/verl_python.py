"""Measuring in the environment that has verl and Ray, from one that may not.

A suite that needs them hands over the name of a module with ``measure(context)``; it runs in
that environment's interpreter, and its result comes back as JSON:

    .venv-verl-0.9.1/bin/python -m benchmarks.suites.verl_python MODULE --seed 20 …
"""

from __future__ import annotations

import argparse
import importlib
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


def measured(module: str, suite: str, title: str, context: Context) -> SuiteResult:
    """Return what ``module.measure`` finds in the environment with verl.

    ``suite`` and ``title`` are for a result that says why there is none.

    Raises:
        RuntimeError: the module ended without a result; it has said why on standard error.
    """
    python = interpreter()
    if python is None:
        return SuiteResult(
            suite=suite,
            title=title,
            skipped=f"needs verl 0.9.1 in its own environment: `{MAKE}` builds it, about 2 GB",
        )
    path = context.scratch / "result.json"
    scratch = context.scratch / "work"
    scratch.mkdir()
    command = [str(python), "-m", "benchmarks.suites.verl_python", module]
    command += ["--seed", str(context.seed), "--rounds", str(context.rounds)]
    command += ["--scratch", str(scratch), "--result", str(path)]
    command += ["--full"] if context.full else []
    command += ["--data", str(context.data.resolve())] if context.data is not None else []
    # Ray writes to standard output, which is for the result.
    ended = subprocess.run(
        command,
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=False,
    )
    if ended.returncode:
        raise RuntimeError(f"{module} ended with exit code {ended.returncode}")
    return SuiteResult.model_validate_json(path.read_bytes())


def main() -> None:
    """Run ``measure`` of a module in this process and write its result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("module")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--result", type=Path, required=True)
    given = parser.parse_args()
    # Short, because a socket's path below it has little room.
    with tempfile.TemporaryDirectory(prefix="cpr", dir="/tmp") as folder:
        os.environ.setdefault("RAY_TMPDIR", folder)
        context = Context(given.full, given.seed, given.rounds, given.data, given.scratch)
        result: SuiteResult = importlib.import_module(given.module).measure(context)
    given.result.write_text(result.model_dump_json(), encoding="utf-8")


if __name__ == "__main__":
    main()
