"""Run suites, each in a process of its own, and gather what they found.

A suite that fails does not stop the others: it is named, its error is kept, and the run counts
as failed.  Nothing is merged with an earlier run: what did not run now is not in the results.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from benchmarks.harness import machine
from benchmarks.harness.context import REPOSITORY
from benchmarks.harness.results import Run, SuiteResult
from benchmarks.harness.targets import TARGETS

# From here on a machine counts as busy with something else; a desktop at rest stays below.
BUSY = 0.05
SUITE = (sys.executable, "-m", "benchmarks.suites")


@dataclass(frozen=True)
class Settings:
    """What all suites of a run are told; see ``harness.context.Context``."""

    full: bool
    seed: int
    rounds: int
    data: Path | None

    def words(self) -> list[str]:
        """Return them as options of ``python -m benchmarks.suites``."""
        words = ["--seed", str(self.seed), "--rounds", str(self.rounds)]
        if self.full:
            words.append("--full")
        if self.data is not None:
            words += ["--data", str(self.data.resolve())]
        return words


class SuiteError(Exception):
    """A suite ended without a result; the text is the last line of what it said."""


def run_all(names: Sequence[str], settings: Settings, only: bool, console: Console) -> Run:
    """Run the suites one after the other; progress goes to ``console``.

    ``only`` says that ``names`` are not all suites there are.
    """
    started = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    about = machine.describe()
    start = machine.Moment.now()
    found: list[SuiteResult] = []
    failures: dict[str, str] = {}
    seconds: dict[str, float] = {}
    for number, name in enumerate(names, 1):
        console.print(f"[bold]{name}[/bold] ({number} of {len(names)})", highlight=False)
        begin = time.monotonic()
        try:
            found.append(run_one(name, settings))
        except SuiteError as error:
            failures[name] = str(error)
            console.print(f"  [red]failed[/red]: {error}", highlight=False)
        seconds[name] = round(time.monotonic() - begin, 1)
        console.print(f"  [dim]{seconds[name]} s[/dim]", highlight=False)
    end = machine.Moment.now()
    others = end.others_since(start)
    return Run(
        command=command(settings, names if only else ()),
        started=started,
        full=settings.full,
        seed=settings.seed,
        rounds=settings.rounds,
        data=settings.data is not None,
        machine=about,
        load_start=round(start.load, 2),
        load_end=round(end.load, 2),
        others=round(others, 3),
        seconds=seconds,
        suites=found,
        failures=failures,
        warnings=_warnings(about, others, settings),
    )


def command(settings: Settings, only: Sequence[str]) -> str:
    """Return what to type for the same run; without its folders, which differ by machine."""
    words = ["python -m benchmarks", *(["--full"] if settings.full else [])]
    words += [f"--only {name}" for name in only]
    return " ".join([*words, f"--seed {settings.seed}", f"--rounds {settings.rounds}"])


def run_one(name: str, settings: Settings) -> SuiteResult:
    """Run one suite in a process of its own.

    What it writes to standard error is passed on as it comes.  Raises SuiteError where it ends
    with another exit code than 0, or asks for the check of a target that there is none of.
    """
    with tempfile.TemporaryDirectory(prefix="bench-result-") as folder:
        path = Path(folder) / "result.json"
        last = ""
        with subprocess.Popen(
            [*SUITE, name, "--result", str(path), *settings.words()],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stderr is not None  # a pipe was asked for
            for line in process.stderr:
                sys.stderr.write(line)
                last = line.strip() or last
        if process.returncode != 0:
            raise SuiteError(f"exit code {process.returncode}: {last}")
        result = SuiteResult.model_validate_json(path.read_bytes())
    unknown = [check.target for check in result.checks if check.target not in TARGETS]
    if unknown:
        raise SuiteError(f"checks targets that do not exist: {', '.join(unknown)}")
    return result


def _warnings(about: machine.Machine, others: float, settings: Settings) -> list[str]:
    warnings = []
    if others > BUSY:
        warnings.append(
            f"other programs took {others:.0%} of the processors during the run: times are too "
            "long, and ratios less sure than usual, above all those of two cores"
        )
    if about.dirty:
        warnings.append(f"the checkout differed from commit {about.commit}")
    if about.backend != "native":
        warnings.append("the compiled core is not built: what is measured is the Python twin")
    if settings.data is None:
        warnings.append("no folder of real rollouts: all texts are generated")
    return warnings
