"""Run suites, each in a process of its own, and gather what they found.

A suite that fails does not stop the others: it is named, its error is kept, and the run counts
as failed.  Only what ran now is in the results, unless an earlier run is handed over.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError
from rich.console import Console

from benchmarks.harness import machine
from benchmarks.harness.results import TARGETS, Run, State, SuiteResult
from benchmarks.measure import REPOSITORY, Settings

# From here on a machine counts as busy with something else; a desktop at rest stays below.
BUSY = 0.05
SUITE = (sys.executable, "-m", "benchmarks.suites")


class SuiteError(Exception):
    """A suite ended without a result that can be used; the text says why."""


class MergeError(Exception):
    """A run cannot be merged with an earlier one; the text says why."""


def run_all(
    names: Sequence[str],
    settings: Settings,
    only: bool,
    console: Console,
    keep: Callable[[Run], None],
    earlier: Run | None = None,
) -> Run:
    """Run the suites one after the other; progress goes to ``console``.

    Args:
        only: says that ``names`` are not all suites there are.
        keep: called with what there is after each suite; what it got last is returned.
        earlier: a run whose other suites are kept, see :func:`mergeable`.

    Raises:
        MergeError: the earlier run is of another commit, machine or settings.
    """
    about = machine.describe()
    run = Run(
        command=command(settings, names if only and earlier is None else ()),
        started=_now(),
        full=settings.full,
        seed=settings.seed,
        rounds=settings.rounds,
        data=settings.data is not None,
        machine=about,
    )
    if earlier is not None:
        mergeable(earlier, run)
        run.suites = [suite for suite in earlier.suites if suite.suite not in names]
        run.failures = {name: why for name, why in earlier.failures.items() if name not in names}
        run.states = {name: state for name, state in earlier.states.items() if name not in names}
    for number, name in enumerate(names, 1):
        console.print(f"[bold]{name}[/bold] ({number} of {len(names)})", highlight=False)
        begun, start = _now(), machine.Moment.now()
        try:
            run.suites = sorted([*run.suites, run_one(name, settings)], key=lambda one: one.suite)
        except SuiteError as error:
            run.failures[name] = str(error)
            console.print(f"  [red]failed[/red]: {error}", highlight=False)
        end = machine.Moment.now()
        state = State(
            started=begun,
            commit=about.commit,
            dirty=about.dirty,
            seconds=round(end.wall - start.wall, 1),
            load_start=round(start.load, 2),
            load_end=round(end.load, 2),
            others=round(end.others_since(start), 3),
        )
        run.states = dict(sorted({**run.states, name: state}.items()))
        run.warnings = _warnings(run)
        console.print(f"  [dim]{state.seconds} s[/dim]", highlight=False)
        keep(run)
    return run


def mergeable(earlier: Run, now: Run) -> None:
    """Raise MergeError where an earlier run's figures do not belong beside those of this one."""

    def told(run: Run) -> dict[str, object]:
        about = run.machine
        return {
            "commit": about.commit,
            "processor": about.cpu,
            "Python": about.python,
            "core": f"{about.backend}, {about.compiler}",
            "--full": run.full,
            "--seed": run.seed,
            "--rounds": run.rounds,
            "real rollouts": run.data,
        }

    for (name, was), value in zip(told(earlier).items(), told(now).values(), strict=True):
        if was != value:
            raise MergeError(f"{name} was {was} in the earlier run and is {value} now")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def command(settings: Settings, only: Sequence[str]) -> str:
    """Return what to type for the same run; without its folders, which differ by machine."""
    words = ["python -m benchmarks", *(["--full"] if settings.full else [])]
    words += [f"--only {name}" for name in only]
    return " ".join([*words, f"--seed {settings.seed}", f"--rounds {settings.rounds}"])


def run_one(name: str, settings: Settings) -> SuiteResult:
    """Run one suite in a process of its own.

    What it writes to standard error is passed on as it comes.  Raises SuiteError where it ends
    with another exit code than 0, hands over something else than a result, or asks for the check
    of a target that there is none of.
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
        try:
            result = SuiteResult.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            raise SuiteError(f"it handed over no result: {last}") from None
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise SuiteError(f"its result is no result: {where}: {first['msg']}") from None
    unknown = [check.target for check in result.checks if check.target not in TARGETS]
    if unknown:
        raise SuiteError(f"checks targets that do not exist: {', '.join(unknown)}")
    return result


def _warnings(run: Run) -> list[str]:
    warnings = []
    others = max((state.others for state in run.states.values()), default=0.0)
    if others > BUSY:
        warnings.append(
            f"other programs took up to {others:.0%} of the processors during a suite: times are "
            "too long, and ratios less sure than usual, above all those of two cores"
        )
    if run.machine.dirty or any(state.dirty for state in run.states.values()):
        warnings.append(f"the checkout differed from commit {run.machine.commit}")
    if run.machine.backend != "native":
        warnings.append("the compiled core is not built: what is measured is the Python twin")
    if not run.data:
        warnings.append("no folder of real rollouts: all texts are generated")
    return warnings
