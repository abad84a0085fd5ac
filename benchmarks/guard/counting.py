"""Count the instructions of every probe with valgrind's callgrind.

The counted process gets an environment of its own (a fixed hash seed, one thread for numpy,
nothing of the caller's settings) and valgrind's own address layout, so that the same binaries
give the same counts, to a few thousandths.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.guard import probes
from benchmarks.guard.baseline import Counts, Measure, facts
from benchmarks.harness.measure import REPOSITORY

_TIMEOUT_S = 900
# What the counted process keeps of the caller's environment: how programs and libraries are found.
_KEPT = ("PATH", "HOME", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV")
_TOTALS = re.compile(r"^totals: (\d+)$", re.MULTILINE)


class CountingError(Exception):
    """Nothing could be counted; the text says why."""


def missing() -> str | None:
    """Return why nothing can be counted here; None where it can."""
    from consensuspr import core

    if shutil.which("valgrind") is None:
        return "valgrind is not installed"
    if core.BACKEND != "native":
        return "the compiled core is not built"
    return None


def count() -> Counts:
    """Count everything; about half a minute of processor time.

    Raises:
        CountingError: the counted process failed, or callgrind wrote something else.
    """
    with tempfile.TemporaryDirectory(prefix="guard-") as name:
        folder = Path(name)
        made = probes.build()
        digest = probes.write(made, folder / "inputs.json")
        scratch = folder / "scratch"
        scratch.mkdir()
        dumps, result = folder / "callgrind.out", folder / "result.json"
        _run(
            [
                "valgrind",
                "-q",
                "--tool=callgrind",
                f"--dump-before={probes.MARK}",
                f"--callgrind-out-file={dumps}",
                *[sys.executable, "-s", "-m", "benchmarks.guard.probes"],
                *map(str, (folder / "inputs.json", scratch, result)),
            ]
        )
        done = json.loads(result.read_bytes())
        # Dump 1 ends with the mark before all probes; then each has one before and one of it.
        wanted = 1 + 2 * len(done)
        found = len(list(folder.glob(f"{dumps.name}.*")))
        if found != wanted:
            raise CountingError(f"callgrind wrote {found} counts where {wanted} were expected")
        return Counts(
            facts=facts(),
            inputs=digest,
            measures={
                probe["name"]: Measure(
                    kind=probe["kind"],
                    unit=probe["unit"],
                    instructions=_total(Path(f"{dumps}.{2 * at + 3}")) / probe["units"],
                )
                for at, probe in enumerate(done)
            },
        )


def _run(command: list[str]) -> None:
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment |= {
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "LC_ALL": "C.UTF-8",
    }
    try:
        done = subprocess.run(
            command,
            cwd=REPOSITORY,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CountingError(f"the counted process took longer than {_TIMEOUT_S} s") from None
    if done.returncode != 0:
        last = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        raise CountingError(f"the counted process ended with code {done.returncode}: {last}")


def _total(dump: Path) -> int:
    found = _TOTALS.search(dump.read_text(encoding="utf-8", errors="replace"))
    if found is None:
        raise CountingError(f"callgrind wrote no total into {dump.name}")
    return int(found[1])
