"""``python -m benchmarks.suites NAME``: run one suite in this process, its result as JSON.

This is how ``python -m benchmarks`` runs each suite, so that one suite's memory and threads
never show in another's figures.  By hand it prints the result on standard output.
"""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import suites
from benchmarks.harness.results import SuiteResult
from benchmarks.measure import Context, WrongAnswerError


def main(
    name: Annotated[str, typer.Argument(help="The suite, a module of benchmarks/suites.")],
    full: Annotated[bool, typer.Option("--full", help="All sizes, not the quick ones.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of all generated text.")] = 20,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each measurement.")] = 7,
    data: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Folder with rollouts/.")
    ] = None,
    result: Annotated[
        Path | None, typer.Option(help="Write the result here instead of standard output.")
    ] = None,
) -> None:
    """Run one suite in this process and write its result as JSON."""
    if name not in suites.names():
        raise typer.BadParameter(f"no suite {name!r}; there are {', '.join(suites.names())}")
    module = importlib.import_module(f"benchmarks.suites.{name}")
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as scratch:
        try:
            found: SuiteResult = module.run(Context(full, seed, rounds, data, Path(scratch)))
        except WrongAnswerError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(1) from None
    text = found.model_dump_json(indent=2) + "\n"
    if result is None:
        typer.echo(text, nl=False)
    else:
        result.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command()(main)
    app(prog_name="python -m benchmarks.suites")
