"""``python -m benchmarks``: run the suites, print the targets beside the figures."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from benchmarks import suites
from benchmarks.harness import page, results
from benchmarks.harness.results import Run
from benchmarks.harness.runner import MergeError, run_all
from benchmarks.markdown import around_block, write_block
from benchmarks.measure import REPOSITORY, Settings

# What ``--write`` brings up to date.
_BLOCKS = {"targets": page.targets_block, "step": page.step_block}

_HELP = f"""Measure consensuspr and print its targets beside the figures.

Every suite runs in a process of its own. Within a measurement all contenders take turns on the
same bytes, after their answers were checked; on a shared machine trust the ratios, not the
seconds. Progress goes to standard error, the table to standard output; OUTPUT/results.json keeps
everything, OUTPUT/performance.md is the page of all tables and plots.

Suites: {", ".join(suites.names())}.

\b
A few minutes:      python -m benchmarks
All sizes:          python -m benchmarks --full
One suite:          python -m benchmarks --only core
One suite anew:     python -m benchmarks --only core --merge
The docs' table:    python -m benchmarks --full --write docs/performance.md

Exit codes: 0 all suites ran (a missed target is a result), 1 a suite failed, 2 bad usage.
"""


def main(
    full: Annotated[
        bool, typer.Option("--full", help="All sizes; without it the quick ones.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="SUITE", help="Run this suite alone; may be given again."),
    ] = None,
    merge: Annotated[
        bool,
        typer.Option(
            "--merge",
            help="Keep the other suites of OUTPUT/results.json, which has to be of the same "
            "commit, settings and machine.",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of all generated text.")] = 20,
    rounds: Annotated[
        int, typer.Option(min=1, max=1000, help="Rounds of each measurement; the best counts.")
    ] = 7,
    data: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="Folder with rollouts/ and problems/ (default: $CONSENSUSPR_SHARED/data, else "
            "../shared/data, else generated text alone).",
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            file_okay=False,
            show_default="build/benchmarks",
            help="Folder for results.json, the page and the plots.",
        ),
    ] = REPOSITORY / "build" / "benchmarks",
    write: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Bring the targets and the training step of this page up to date.",
        ),
    ] = None,
) -> None:
    """Measure consensuspr."""
    if importlib.util.find_spec("matplotlib") is None:
        raise typer.BadParameter('the plots need matplotlib: pip install "consensuspr[plot]"')
    known = suites.names()
    for name in only or ():
        if name not in known:
            raise typer.BadParameter(
                f"no suite {name!r}; there are {', '.join(known)}", param_hint="--only"
            )
    if only and write is not None and not merge:
        raise typer.BadParameter(
            "a page needs all suites, and --only runs some; add --merge to keep the others of "
            "OUTPUT/results.json",
            param_hint="--write",
        )
    if write is not None:
        try:
            for block in _BLOCKS:
                around_block(write, block)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--write") from None
    names = [name for name in known if not only or name in only]
    settings = Settings(full, seed, rounds, data or default_data())
    console = Console(stderr=True)
    file = output / "results.json"
    earlier = _earlier(file) if merge else None
    output.mkdir(parents=True, exist_ok=True)

    def keep(run: Run) -> None:
        file.write_text(run.model_dump_json(indent=2) + "\n", encoding="utf-8")

    try:
        run = run_all(names, settings, bool(only), console, keep, earlier)
    except MergeError as error:
        raise typer.BadParameter(f"{file}: {error}", param_hint="--merge") from None
    page.draw(run, output)
    (output / "performance.md").write_text(page.render(run), encoding="utf-8")
    if write is not None:
        for block, text in _BLOCKS.items():
            write_block(write, block, text(run))
    out = Console()
    out.print(results.terminal(run))
    for note in results.notes(run):
        out.print(Padding.indent(Text(note), 2))
    for warning in run.warnings:
        console.print(f"[yellow]warning:[/yellow] {warning}", highlight=False)
    for suite in run.suites:
        if suite.skipped is not None:
            console.print(
                f"[yellow]skipped:[/yellow] suite {suite.suite}: {suite.skipped}", highlight=False
            )
    for name, reason in run.failures.items():
        console.print(f"[red]error:[/red] suite {name} failed: {reason}", highlight=False)
    if run.failures:
        raise typer.Exit(1)


def _earlier(path: Path) -> Run:
    """Read the results that are to be kept."""
    try:
        return Run.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        problem = f"there is no {path} to merge with"
    except ValidationError as error:
        problem = f"{path} is not of this version: {error.errors()[0]['msg']}"
    raise typer.BadParameter(problem, param_hint="--merge")


def default_data() -> Path | None:
    """Return the folder of real rollouts, None where there is none."""
    named = os.environ.get("CONSENSUSPR_SHARED")
    folder = (Path(named) if named else REPOSITORY.parent / "shared") / "data"
    if folder.is_dir():
        return folder
    if named:
        raise typer.BadParameter(f"CONSENSUSPR_SHARED names {named}, which has no folder data")
    return None


app = typer.Typer(add_completion=False, rich_markup_mode=None)
app.command(help=_HELP)(main)

if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
