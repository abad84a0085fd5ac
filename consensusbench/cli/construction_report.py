"""How a build is shown: a bar while it runs, then a table by data source and what was left out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import typer
from rich.table import Table
from rich.text import Text

from consensusbench.construction import BuildReport, Progress
from consensuspr.cli.console import ColorMode, make_console, one_line
from consensuspr.cli.progress import count_progress
from consensuspr.data.json_text import dump_json

NO_SOURCE = "(none)"

# What the reasons of excluded problems mean, as ends of "12 problems …".
REASONS = {
    "no_rollouts": "without a rollout",
    "no_ground_truth": "without a ground truth",
    "conflicting_rows": "whose rollouts say different things of them",
    "few_correct": "with too few correct rollouts",
    "few_nodes": "with too few nodes",
    "time_limit": "that took too long",
    "failed": "that failed",
}


class TerminalProgress(Progress):
    """Shows bars on standard error, one after the other.

    Args:
        hidden: show none; notes are shown all the same.
        reading: whether rollouts are read before the work.
    """

    def __init__(self, hidden: bool, *, reading: bool = True) -> None:
        self._hidden = hidden
        self._reading = reading
        self._stack = ExitStack()
        self._advance_to: Callable[[int], None] = lambda done: None

    def __enter__(self) -> Self:
        if self._reading:
            self._show("reading", None, "rollouts")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def read(self, rollouts: int) -> None:
        self._advance_to(rollouts)

    def begin(self, problems: int | None) -> None:
        self._stack.close()
        self._show("building", problems, "problems")

    def work(self, problems: int) -> None:
        self._advance_to(problems)

    def note(self, sentence: str) -> None:
        typer.echo(sentence, err=True)

    def _show(self, what: str, total: int | None, unit: str) -> None:
        self._advance_to = self._stack.enter_context(
            count_progress(what, total, unit, hidden=self._hidden)
        )


def print_report(report: BuildReport, as_json: bool, color: ColorMode) -> None:
    """Print what a build did, as JSON or for a person."""
    if as_json:
        print(dump_json(report.to_json(), ensure_ascii=True))
        return
    console = make_console(color)
    console.print(_sources_table(report))
    if report.problems.dropped:
        console.print()
        console.print(_dropped_table(report))
    console.print()
    for sentence in _rollout_sentences(report):
        console.print(sentence, markup=False, soft_wrap=True)
    for sentence in (*_excluded_sentences(report), *report.warnings()):
        console.print(sentence, style="yellow", markup=False, soft_wrap=True)
    for sentence in _end_sentences(report):
        console.print(sentence, markup=False, soft_wrap=True)


def _sources_table(report: BuildReport) -> Table:
    counts = report.problems
    what = "Nodes" if report.paths.dataset is not None else "Candidates"
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Data source")
    for heading in ("Problems", what, f"{what} a problem"):
        table.add_column(heading, justify="right")
    for source, problems in sorted(counts.written.items()):
        table.add_row(
            Text(one_line(source or NO_SOURCE)), *_numbers(problems, counts.nodes[source])
        )
    if len(counts.written) > 1:
        table.add_section()
        total = _numbers(counts.written.total(), counts.nodes.total())
        table.add_row(Text("all"), *total, style="bold")
    return table


def _numbers(problems: int, nodes: int) -> list[str]:
    return [f"{problems:,}", f"{nodes:,}", f"{nodes / problems:.2f}"]


def _dropped_table(report: BuildReport) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Dropped by")
    table.add_column("Reason")
    table.add_column("Conclusions", justify="right")
    for (stage, reason), count in sorted(
        report.problems.dropped.items(), key=lambda item: (item[0][0], -item[1], item[0][1])
    ):
        table.add_row(stage, reason.replace("_", " "), f"{count:,}")
    return table


def _rollout_sentences(report: BuildReport) -> list[str]:
    counts = report.rollouts
    if counts is None:
        return []
    others = [
        (counts.incorrect, "not correct"),
        (counts.undecided, "undecided"),
        (counts.repeated, "repeated"),
        (counts.other_model, "of other models"),
        (counts.unknown_problem, "of unknown problems"),
        (counts.unusable_problem, "of problems that cannot be used"),
        (counts.oversize, "longer than 1 MiB"),
    ]
    rest = "".join(f", {count:,} {what}" for count, what in others if count)
    return [
        f"{counts.read:,} rollouts: {counts.correct:,} correct, of which {counts.used:,} were "
        f"looked at{rest}"
    ]


def _excluded_sentences(report: BuildReport) -> list[str]:
    counts = report.problems
    return [
        f"left out: {count:,} problem{'' if count == 1 else 's'} {REASONS[reason]} (first: "
        f"{one_line(counts.examples[reason], 160)})"
        for reason, count in counts.excluded.most_common()
    ]


def _end_sentences(report: BuildReport) -> list[str]:
    seconds, counts = report.seconds, report.problems
    resumed = f", {report.resumed:,} of them extracted by an earlier run" if report.resumed else ""
    sentences = [
        f"{counts.total:,} problems in {seconds.total:.1f} s{resumed} (reading "
        f"{seconds.reading:.1f} s, verifying {seconds.verifying:.1f} s; in the workers extracting "
        f"{seconds.extracting:.1f} s, refining {seconds.refining:.1f} s)"
    ]
    for path, what in (
        (report.paths.candidates, "candidates"),
        (report.paths.audit, "what was left out, and why"),
    ):
        if path is not None:
            sentences.append(f"{path}: {what}")
    if report.paths.dataset is not None:
        sentences.append(
            f"{report.paths.dataset}: {counts.written.total():,} problems, digest {report.digest}"
        )
    return sentences
