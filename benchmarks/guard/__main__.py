"""``python -m benchmarks.guard``: hold this checkout against the baseline and the bounds."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.guard import baseline, counting
from benchmarks.guard.baseline import Counts, Judgement, Outcome, Verdict, judge

_HELP = f"""Fail where a change made scoring dearer.

Instructions are counted under valgrind and compared with {baseline.BASELINE.name}; ratios of times
are compared with fixed bounds, in up to three tries. About two minutes.

\b
Check:                         python -m benchmarks.guard
Accept what was changed:       {baseline.UPDATE}

Exit codes: 0 nothing costs more (where nothing could be counted, it says why and checks the
ratios), 1 something does, or nothing at all was checked (with --require: nothing was counted),
2 bad usage.
"""


def main(
    update: Annotated[
        bool, typer.Option("--update", help="Count, and write the baseline anew.")
    ] = False,
    require: Annotated[
        bool, typer.Option("--require", help="Fail where nothing can be counted.")
    ] = False,
    no_ratios: Annotated[
        bool, typer.Option("--no-ratios", help="Count only: nothing depends on the clock.")
    ] = False,
) -> None:
    """Count, compare, and say what fails."""
    console = Console(width=max(100, Console().width), highlight=False)
    failures: list[str] = []
    skipped = counting.missing()
    if skipped is None:
        try:
            found = counting.count()
        except counting.CountingError as error:
            console.print(f"Nothing was counted: {error}.")
            raise typer.Exit(1) from None
        if update:
            _update(found, console)
            return
        before = baseline.load(baseline.BASELINE)
        skipped = baseline.incomparable(before, found)
        if skipped is None:
            judged = baseline.compare(before, found)
            console.print(_table(judged))
            failures += baseline.sentences(before, found, judged)
    if skipped is not None:
        console.print(f"Instruction counts are skipped: {skipped}.")
        if require or update:
            raise typer.Exit(1)
    if not no_ratios:
        # Here and not above: counts need nothing of what the suites bring along.
        from benchmarks.guard import ratios

        with tempfile.TemporaryDirectory(prefix="guard-") as scratch:
            checks, left_out = ratios.checks(Path(scratch))
            outcomes = [judge(check) for check in checks]
        console.print(_ratios_table(outcomes))
        for sentence in left_out:
            console.print(sentence)
        failures += [outcome.sentence() for outcome in outcomes if not outcome.holds]
    for failure in failures:
        console.print(failure)
    if failures:
        raise typer.Exit(1)
    if no_ratios and skipped is not None:
        console.print("Nothing was checked: neither instructions nor ratios of times.")
        raise typer.Exit(1)
    console.print("Nothing costs more than it may.")


def _update(found: Counts, console: Console) -> None:
    """Write the baseline, and show what changed."""
    if baseline.BASELINE.exists():
        before = baseline.load(baseline.BASELINE)
        why = baseline.incomparable(before, found)
        if why is None:
            console.print(_table(baseline.compare(before, found)))
        else:
            console.print(f"Nothing to compare with: {why}.")
    baseline.save(found, baseline.BASELINE)
    console.print(f"The baseline now has {len(found.measures)} counts, of {found.facts.core}.")


def _table(judged: Sequence[Judgement]) -> Table:
    table = Table("what", "a", title="instructions", title_justify="left")
    for name in ("baseline", "now", "change", "room"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for one in judged:
        table.add_row(
            one.name,
            one.unit,
            "–" if one.expected is None else baseline.number(one.expected),
            "–" if one.found is None else baseline.number(one.found),
            "–" if one.change is None else f"{one.change:+.1%}",
            "–" if one.change is None else f"{one.room:.0%}",
            str(one.verdict) if one.verdict is Verdict.KEPT else f"[bold]{one.verdict}[/bold]",
        )
    return table


def _ratios_table(outcomes: Sequence[Outcome]) -> Table:
    table = Table("what", "limit", title="ratios of times", title_justify="left")
    table.add_column("now", justify="right")
    table.add_column("tries", justify="right")
    table.add_column("verdict")
    for check, tried in outcomes:
        table.add_row(
            f"{check.name}: {check.what}",
            f"{'≤' if check.at_most else '≥'} {check.limit:g}x",
            f"{tried[-1]:.3g}x",
            str(len(tried)),
            "kept" if check.holds(tried[-1]) else "[bold]missed[/bold]",
        )
    return table


app = typer.Typer(add_completion=False, rich_markup_mode=None)
app.command(help=_HELP)(main)

if __name__ == "__main__":
    app(prog_name="python -m benchmarks.guard")
