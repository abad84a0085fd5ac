"""Run every benchmark in a process of its own; print one Markdown table: ``python -m benchmarks``.

``python -m benchmarks core answers`` runs two of them.  Exit code 1: one failed or gave a wrong
answer.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.measure import HEADER, REPOSITORY

# Each script and the environment, beside this one, that it needs.
SCRIPTS = {
    "core": None,
    "service": None,
    "answers": None,
    "verl_step": REPOSITORY / ".venv-verl-0.9.1" / "bin" / "python",
}


def main(words: Sequence[str] | None = None) -> int:
    """Run the scripts that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help=", ".join(SCRIPTS))
    names = parser.parse_args(words).scripts or [*SCRIPTS]
    if unknown := sorted({*names} - {*SCRIPTS}):
        parser.error(f"no script {unknown[0]!r}: choose from {', '.join(SCRIPTS)}")
    print(HEADER, flush=True)
    failed = False
    for name in names:
        python = SCRIPTS[name]
        if python is not None and not python.exists():
            reason = f"{name} needs verl: run `make .venv-verl-0.9.1/.installed` (2 GB)"
            print(f"skipped: {reason}", file=sys.stderr)
            continue
        command = [str(python or sys.executable), "-m", f"benchmarks.{name}"]
        with subprocess.Popen(
            command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None  # a pipe was asked for
            for line in process.stdout:
                if line.rstrip("\n") not in HEADER.splitlines():
                    print(line, end="", flush=True)
        if process.returncode:
            print(f"error: {name} ended with code {process.returncode}", file=sys.stderr)
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
