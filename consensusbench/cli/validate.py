"""``consensusbench validate``: check a dataset."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from consensusbench import check_outputs
from consensusbench.cli.options import DatasetArgument, file_option
from consensusbench.tables import Cell, Row, Table, number, print_result, words
from consensuspr.cli.options import Color, Json, OnErrorChoice, OnErrorOption
from consensuspr.console import (
    ColorMode,
    NoProgress,
    count_of,
    count_progress,
    make_console,
    one_line,
)
from consensuspr.data import open_writer

if TYPE_CHECKING:
    from consensusbench.quality.validate import DatasetFinding, ValidationReport

_STYLE = {"error": "bold red", "warning": "yellow", "note": "dim"}
_LONGEST = 400


def validate(
    dataset: DatasetArgument,
    rollouts: Annotated[
        list[Path] | None,
        file_option("Rollouts of its problems, for further checks; repeat for several."),
    ] = None,
    probes: Annotated[
        bool,
        typer.Option("--probes", help="Also measure attacks: the NCR of texts that solve nothing."),
    ] = False,
    output: Annotated[Path | None, file_option("Write every finding as a row.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with code 1 for warnings too.")
    ] = False,
    examples: Annotated[
        int, typer.Option(metavar="N", min=0, help="Findings of each kind to show.")
    ] = 3,
    on_error: OnErrorOption = OnErrorChoice.STOP,
    no_progress: NoProgress = False,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> int:
    """Check a dataset: rows, nodes, and how cheaply nodes can be hit.

    ```text
    consensusbench validate dataset.jsonl
    consensusbench validate dataset.jsonl --rollouts rollouts.jsonl --probes --output found.jsonl
    ```

    Errors make scores wrong or a node worthless; warnings make the reward cheaper than it looks;
    notes matter to readers of the figures. `--on-error` is about bad rows of the rollouts: those
    of the dataset are findings. Exit code 1 if there are errors, and with `--strict` for warnings.
    """
    from consensusbench.quality.validate import validate_dataset

    check_outputs((output,), (dataset, *(rollouts or ())))

    def progress(stage: str, unit: str) -> AbstractContextManager[Callable[[int], None]]:
        return count_progress(stage, None, unit, hidden=no_progress)

    with nullcontext() if output is None else open_writer(output) as out:

        def write(finding: DatasetFinding) -> None:
            if out is not None:
                out.write(finding.to_row())

        report = validate_dataset(
            dataset,
            tuple(rollouts or ()),
            probes=probes,
            examples=examples,
            on_error=on_error.value,
            on_finding=write,
            progress=progress,
        )
    fails = report.fails(strict)
    if as_json:
        print(json.dumps({"ok": not fails, **report.to_json()}))
    else:
        _print(make_console(color), report, dataset)
    return 1 if fails else 0


def _print(console: Console, report: ValidationReport, dataset: Path) -> None:
    from consensusbench.quality.probes import attacks_by_source_table
    from consensusbench.quality.validate import Severity

    kinds = report.by_code()
    if kinds:
        rows: list[Row] = [
            [Cell(code.severity.value, style=_STYLE[code.severity]), code.value, count]
            for code, count, _ in kinds
        ]
        table = Table("", [words("Severity"), words("Finding"), number("Count")], [rows])
        console.print(table.to_terminal(console.width))
    for code, count, examples in kinds:
        for finding in examples:
            line = Text(f"{code.severity.value:7}", style=_STYLE[code.severity])
            line.append(f"  {code.value}  {_place(finding, dataset)}: ", style="default")
            line.append(one_line(finding.message, _LONGEST), style="default")
            # One finding is one line, also for grep.
            console.print(line, soft_wrap=True)
        if examples and count > len(examples):
            console.print(f"         {count - len(examples):,} more {code.value}", style="dim")
    parts = [f"{count_of(report.good_rows, 'problem')} with {count_of(report.nodes, 'node')}"]
    if report.bad_rows:
        parts.append(count_of(report.bad_rows, "bad row"))
    if report.rollouts is not None:
        unknown = f" ({report.unknown_rollouts:,} of unknown problems)"
        parts.append(count_of(report.rollouts, "rollout") + unknown)
    found = ", ".join(count_of(report.total(one), one.value) for one in Severity)
    console.print(f"{', '.join(parts)}: {found}", markup=False)
    if (probes := report.probes) is not None:
        console.print()
        print_result(console, [attacks_by_source_table(probes)])


def _place(finding: DatasetFinding, dataset: Path) -> str:
    place = f"{dataset.name}:{finding.line}" if finding.line else dataset.name
    if finding.problem_id is not None:
        place += f" problem {one_line(finding.problem_id)!r}"
    if finding.node_id is not None:
        place += f" node {one_line(finding.node_id)!r}"
    return place
