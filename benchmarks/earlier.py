"""This checkout against an earlier one: ``python -m benchmarks.earlier FOLDER``.

FOLDER is a checkout of another commit with an environment of its own::

    git worktree add ../earlier COMMIT && make -C ../earlier .venv/.installed

Core and scorer run in a process of each checkout in turn, on the same bytes; the best of all turns
counts, CPU time of one thread.  Where results differ it says on how many nodes, because rules may
have changed in between: a ratio is about the same work only where they agree.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.__main__ import default_data
from benchmarks.children.earlier import Set, core_seconds, scoring_seconds
from benchmarks.harness import texts
from benchmarks.harness.measure import Context
from benchmarks.harness.processes import fresh
from benchmarks.suites import core

# Of the batch whose scoring is compared; what the suite ``service`` has in a request.
ROLLOUTS, ROLLOUT_BYTES = 256, 10_000
SEED = 20


def main(
    folder: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="The checkout.")],
    turns: Annotated[int, typer.Option(min=1, help="Turns of each checkout.")] = 3,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each turn.")] = 7,
    data: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Folder with rollouts/.")
    ] = None,
) -> None:
    """Print how many times as fast as an earlier checkout this one is."""
    earlier = folder.resolve() / ".venv" / "bin" / "python"
    if not earlier.exists():
        raise typer.BadParameter(f"{earlier} does not exist: make .venv/.installed there first")
    pythons = {"earlier": earlier, "now": Path(sys.executable)}
    table = Table("what", "MB", "earlier MB/s", "now MB/s", "times as fast", "equal")
    with tempfile.TemporaryDirectory() as scratch:
        context = Context(True, SEED, rounds, data or default_data(), Path(scratch))
        for name, (work, about) in core.real_problems(context).items():
            given: Set = work.texts, work.problems, work.group
            best, equal = _in_turns(pythons, turns, core_seconds, given, rounds)
            _row(table, f"{name}: {about}", work.size, best, equal)
        batch = texts.batch(ROLLOUTS, ROLLOUT_BYTES, SEED, context.scratch)
        rollouts = [(row["problem_id"], row["response"]) for row in batch.rows]
        best, equal = _in_turns(pythons, turns, scoring_seconds, batch.dataset, rollouts, rounds)
        _row(table, "scoring, 10 KB generated", batch.num_bytes, best, equal)
        each = ", ".join(f"{name} {best[name] / ROLLOUTS * 1e6:.1f} µs" for name in pythons)
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    console.print(f"in-process scoring of a rollout: {each}", highlight=False)


def _in_turns(
    pythons: dict[str, Path], turns: int, measure: Callable[..., Any], *arguments: object
) -> tuple[dict[str, float], float]:
    """Return the best seconds of each checkout, and the share of results that are equal."""
    best = dict.fromkeys(pythons, float("inf"))
    found: dict[str, Any] = {}
    for _ in range(turns):
        for name, python in pythons.items():
            seconds, found[name] = fresh(measure, *arguments, python=python)
            best[name] = min(best[name], seconds)
    pairs = zip(found["earlier"], found["now"], strict=True)
    return best, float(np.mean([np.mean(np.equal(*pair)) for pair in pairs]))


def _row(table: Table, what: str, size: int, best: dict[str, float], equal: float) -> None:
    table.add_row(
        what,
        f"{size / 1e6:.2f}",
        f"{size / best['earlier'] / 1e6:,.0f}",
        f"{size / best['now'] / 1e6:,.0f}",
        f"{best['earlier'] / best['now']:.2f}x",
        f"{equal:.2%}",
    )


if __name__ == "__main__":
    typer.run(main)
