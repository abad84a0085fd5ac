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
from consensusbench.tables import print_result
from consensuspr.cli.options import Color, Json, NoProgress, OnErrorChoice, OnErrorOption, flag
from consensuspr.console import (
    ColorMode,
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
# Columns of a finding.
WIDTH = 100


def validate(
    dataset: DatasetArgument,
    rollouts: Annotated[
        list[Path] | None,
        file_option("File of rollouts to match with the nodes; repeat it for several."),
    ] = None,
    probes: Annotated[
        bool,
        flag("--probes", "Also measure the NCR of attacks: texts that solve nothing."),
    ] = False,
    output: Annotated[Path | None, file_option("File for all findings: JSONL or Parquet.")] = None,
    strict: Annotated[bool, flag("--strict", "Exit with code 1 for warnings too.")] = False,
    examples: Annotated[
        int, typer.Option(metavar="N", min=0, help="Number of findings of each kind to print.")
    ] = 3,
    on_error: OnErrorOption = OnErrorChoice.STOP,
    no_progress: NoProgress = False,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> int:
    """Check a dataset for faults, and for nodes that are too easy to hit.

    ```text
    consensusbench validate dataset.jsonl
    consensusbench validate dataset.jsonl --rollouts rollouts.jsonl --probes --output found.jsonl
    ```

    An *error* makes scores wrong or a node useless. A *warning* means that a reward can be had
    without solving the problem. A *note* matters when you read figures. The exit code is 1 if there
    are errors, or with `--strict` warnings.

    Use rollouts of models that the nodes were not built from. `--on-error` applies to the rollouts;
    bad rows of the dataset are findings.
    See the page "Check nodes".
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
    from consensusbench.quality.validate import Code, Severity

    for code, count, examples in report.by_code():
        head = Text(f"{code.severity.value:7}", style=_STYLE[code.severity])
        head.append(f"  {code.value}", style="bold").append(f"  {count:,}", style="default")
        if total := report.of(code):
            head.append(f" of {count_of(total, code.unit)} ({count / total:.1%})", style="default")
        console.print(head)
        for finding in examples:
            # One finding is one line, also for grep.
            line = f"{'':9}{_place(finding, dataset)} {one_line(finding.message, _LONGEST)}"
            if finding.text:
                line += f": {one_line(finding.text, _LONGEST)}"
            shown = Text(line, no_wrap=True)
            if code is not Code.CHEAP_ATTACK:
                shown.truncate(WIDTH, overflow="ellipsis")
            console.print(shown, soft_wrap=True)
        if examples and count > len(examples):
            console.print(f"{'':9}and {count - len(examples):,} more", style="dim")
    parts = [f"{count_of(report.good_rows, 'problem')} with {count_of(report.nodes, 'node')}"]
    if report.bad_rows:
        parts.append(count_of(report.bad_rows, "bad row"))
    if report.rollouts is not None:
        unknown = f" ({report.unknown_rollouts:,} of problems that the dataset does not have)"
        parts.append(count_of(report.rollouts, "rollout") + unknown)
        if not report.compared:
            parts.append("too few held-out right ones to check never_matched")
    found = ", ".join(count_of(report.total(one), one.value) for one in Severity)
    console.print(f"{', '.join(parts)}: {found}", markup=False)
    if (probes := report.probes) is not None:
        console.print()
        print_result(console, [attacks_by_source_table(probes)])


def _place(finding: DatasetFinding, dataset: Path) -> str:
    if finding.problem_id is None:
        return f"{dataset.name}:{finding.line}" if finding.line else dataset.name
    place = one_line(finding.problem_id, 40)
    return place if finding.node_id is None else f"{place} {one_line(finding.node_id, 20)}"
