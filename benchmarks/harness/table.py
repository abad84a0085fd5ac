"""The table that all is about: each target with its figure and verdict, side by side."""

from __future__ import annotations

from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from benchmarks.harness.results import Check, Run
from benchmarks.harness.targets import TARGETS, Verdict

_COLOURS = {
    Verdict.AIM_MET: "green",
    Verdict.MET: "green",
    Verdict.MISSED: "bold red",
    Verdict.NOT_MEASURED: "dim",
}


@dataclass(frozen=True)
class Row:
    """One target as it is shown."""

    key: str
    what: str
    at_least: str
    aim: str
    figure: str
    verdict: Verdict
    note: str


def rows(run: Run) -> list[Row]:
    """Judge every target, in the order of ``TARGETS``; the last check of one counts."""
    checks: dict[str, Check] = {
        check.target: check for suite in run.suites for check in suite.checks
    }
    table = []
    for key, target in TARGETS.items():
        check = checks.get(key)
        value = None if check is None else check.value
        verdict = target.verdict(value)
        said = [check.note] if check else []
        if verdict is Verdict.MISSED and target.bounded_by:
            said.append(target.bounded_by)
        table.append(
            Row(
                key=key,
                what=target.what,
                at_least=target.bound(target.at_least),
                aim=target.bound(target.aim),
                figure="–" if value is None else target.number(value),
                verdict=verdict,
                note="; ".join(said),
            )
        )
    return table


def terminal(run: Run) -> Table:
    """Return the table for a terminal; the notes stand below it, see ``notes``."""
    table = Table(title="targets", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("what", ratio=1)
    for name in ("at least", "aim", "figure"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in rows(run):
        table.add_row(
            row.what, row.at_least, row.aim, row.figure, Text(row.verdict, _COLOURS[row.verdict])
        )
    return table


def notes(run: Run) -> list[str]:
    """Return what is to be said of figures, misses first, each with its target and verdict."""
    noted = [row for row in rows(run) if row.note]
    noted.sort(key=lambda row: row.verdict is not Verdict.MISSED)
    return [f"{row.what} ({row.verdict}): {row.note}" for row in noted]
