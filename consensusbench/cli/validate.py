"""The probes of a dataset as a person reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from consensusbench.outputs import check_outputs, check_row_outputs
from consensuspr.cli.options import Color, Json, OnErrorChoice, OnErrorOption
from consensuspr.console import (
    ColorMode,
    NoProgress,
    count_progress,
    load_core,
    make_console,
    one_line,
)
from consensuspr.data import open_writer

if TYPE_CHECKING:
    from consensusbench.quality import Finding, ValidationReport
    from consensusbench.quality.probes import AttackFigures, ProbeReport


ALL = "all"


def print_probes(console: Console, report: ProbeReport) -> None:
    """Print attacks by source, what real rollouts earn, and where attacks earn most."""
    console.print(_attacks(report))
    if report.density:
        console.print()
        console.print(_density(report))
    for tried in report.attacks:
        for worst in tried.worst[:1]:
            console.print(
                Text(
                    f"{tried.attack.value} earns most of problem {one_line(worst.problem_id)!r}: "
                    f"NCR {100 * worst.ncr:.1f} % by {one_line(', '.join(worst.node_ids), 80)}",
                    style="dim",
                ),
                soft_wrap=True,
            )


def _attacks(report: ProbeReport) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Attack")
    table.add_column("Data source")
    for heading in ("Problems", "NCR", "without final", "≥ 50 %", "Hits / 1,000 chars"):
        table.add_column(heading, justify="right")
    for tried in report.attacks:
        groups = list(tried.by_source.items())
        if len(groups) > 1:
            groups.append((ALL, tried.overall))
        for source, figures in groups:
            table.add_row(tried.attack.value, Text(one_line(source)), *_cells(figures))
    return table


def _cells(figures: AttackFigures) -> tuple[str, ...]:
    without = figures.ncr_without_final
    return (
        f"{figures.problems:,}",
        f"{100 * figures.ncr:.2f} %",
        "–" if without is None else f"{100 * without:.2f} %",
        f"{100 * figures.share_reached:.1f} %",
        f"{figures.hits_per_1000_chars:.2f}",
    )


def _density(report: ProbeReport) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Real rollouts of")
    for heading in ("Rollouts", "NCR", "Chars", "Hits / 1,000 chars", "99th percentile"):
        table.add_column(heading, justify="right")
    for heading in ("Hits / 1,000 tokens", "99th percentile"):
        table.add_column(heading, justify="right")
    for source, figures in report.density.items():
        table.add_row(
            Text(one_line(source)),
            f"{figures.rollouts:,}",
            f"{100 * figures.ncr:.2f} %",
            f"{figures.median_chars:,.0f}",
            f"{figures.median_per_1000_chars:.2f}",
            f"{figures.p99_per_1000_chars:.2f}",
            *(
                "–" if value is None else f"{value:.2f}"
                for value in (figures.median_per_1000_tokens, figures.p99_per_1000_tokens)
            ),
        )
    return table


# MERGED ``consensusbench validate``: what is wrong with a dataset, before anybody trains on it.

_STYLE = {"error": "bold red", "warning": "yellow", "note": "dim"}
_LONGEST = 400


def validate(
    dataset: Annotated[
        Path,
        typer.Argument(
            metavar="DATASET", show_default=False, help="Dataset: JSONL, JSONL.gz or Parquet."
        ),
    ],
    rollouts: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="Rollouts of its problems, for what only these can show; repeat for several.",
        ),
    ] = None,
    probes: Annotated[
        bool,
        typer.Option("--probes", help="Also measure what can be had without solving a problem."),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", show_default=False, help="Write every finding as a row."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with code 1 for warnings too.")
    ] = False,
    max_unrelated: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            min=0,
            max=1,
            help="Share of other problems' rollouts that a node may hit.",
        ),
    ] = 0.05,
    min_rollouts: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="Rollouts of a problem before a node that none hits is told."
        ),
    ] = 3,
    examples: Annotated[
        int, typer.Option(metavar="N", min=0, help="Findings of each kind to show.")
    ] = 3,
    on_error: OnErrorOption = OnErrorChoice.STOP,
    no_progress: NoProgress = False,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> int:
    """Look a dataset over: rows, nodes, and how cheaply nodes can be hit.

    ```text
    consensusbench validate problems.jsonl
    consensusbench validate problems.jsonl --rollouts rollouts.jsonl --probes --output found.jsonl
    ```

    Errors make scores wrong or a node worthless (a bad row, a node that nothing or nearly
    everything matches); warnings make the reward cheaper than it looks; notes are for whoever
    reads the figures. Bad rows of the dataset are findings; `--on-error` is about bad rows of the
    rollouts. Exit code 1 where there are errors, and with `--strict` for warnings too.
    """
    load_core()
    from consensusbench.quality import ValidationSettings, validate_dataset

    settings = ValidationSettings(
        max_unrelated=max_unrelated,
        min_rollouts=min_rollouts,
        probes=probes,
        examples=examples,
        on_error=on_error.value,
    )

    check_row_outputs((output,))
    check_outputs((output,), (dataset, *(rollouts or ())))

    def progress(what: str, unit: str) -> AbstractContextManager[Callable[[int], None]]:
        return count_progress(what, None, unit, hidden=no_progress)

    with ExitStack() as stack:
        tell: Callable[[Finding], None] = lambda finding: None  # noqa: E731
        if output is not None:
            out = stack.enter_context(open_writer(output))
            tell = lambda finding: out.write(finding.to_row())  # noqa: E731
        report = validate_dataset(
            dataset, tuple(rollouts or ()), settings, tell=tell, progress=progress
        )
    fails = report.fails(strict)
    if as_json:
        print(json.dumps({"ok": not fails, **report.to_json()}))
    else:
        _print(make_console(color), report, dataset)
    return 1 if fails else 0


def _print(console: Console, report: ValidationReport, dataset: Path) -> None:
    if report.counts:
        console.print(_table(report))
    for code, count, examples in report.by_code():
        for finding in examples:
            line = Text()
            line.append(f"{finding.severity.value:7}", style=_STYLE[finding.severity.value])
            line.append(f"  {code.value}  {_place(finding, dataset)}: ")
            line.append(one_line(finding.message, _LONGEST))
            # One finding is one line, also for grep.
            console.print(line, soft_wrap=True)
        if examples and count > len(examples):
            console.print(f"         {count - len(examples):,} more {code.value}", style="dim")
    console.print(_summary(report), markup=False)
    if report.probes is not None:
        console.print()
        print_probes(console, report.probes)


def _table(report: ValidationReport) -> Table:
    from consensusbench.quality import SEVERITY

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Severity")
    table.add_column("Finding")
    table.add_column("Count", justify="right")
    for code, count, _ in report.by_code():
        severity = SEVERITY[code].value
        table.add_row(Text(severity, style=_STYLE[severity]), code.value, f"{count:,}")
    return table


def _place(finding: Finding, dataset: Path) -> str:
    place = f"{dataset.name}:{finding.line}"
    if finding.problem_id is not None:
        place += f" problem {one_line(finding.problem_id)!r}"
    if finding.node_id is not None:
        place += f" node {one_line(finding.node_id)!r}"
    return place


def _summary(report: ValidationReport) -> str:
    from consensusbench.quality import Severity

    rows = report.rows
    parts = [f"{_counted(rows.good, 'problem')} with {_counted(report.nodes, 'node')}"]
    if rows.bad:
        parts.append(_counted(rows.bad, "bad row"))
    if report.rollouts is not None:
        unknown = f" ({report.unknown_rollouts:,} of unknown problems)"
        parts.append(_counted(report.rollouts, "rollout") + unknown * bool(report.unknown_rollouts))
    found = ", ".join(_counted(report.total(one), one.value) for one in Severity)
    return f"{', '.join(parts)}: {found}"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" + "s" * (count != 1)
