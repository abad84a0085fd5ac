"""``consensusbench stats``: what a dataset is made of."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from consensusbench.outputs import check_outputs
from consensusbench.quality.stats import (
    DatasetStats,
    Group,
    composition,
    read_stats,
    write_csv,
    write_latex,
)
from consensuspr.cli.options import Color, Json, OnErrorChoice, OnErrorOption
from consensuspr.console import ColorMode, NoProgress, count_progress, make_console, one_line

# Of a distribution in the terminal; --json has all of it.
_SHOWN_VALUES = 16
_BAR_CHARS = 40


def stats(
    datasets: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATASET...", show_default=False, help="Datasets: JSONL, JSONL.gz or Parquet."
        ),
    ],
    csv: Annotated[
        Path | None,
        typer.Option(metavar="FILE", show_default=False, help="Write the first table as CSV."),
    ] = None,
    latex: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", show_default=False, help="Write the paper's table as LaTeX (booktabs)."
        ),
    ] = None,
    on_error: OnErrorOption = OnErrorChoice.STOP,
    no_progress: NoProgress = False,
    as_json: Json = False,
    color: Color = ColorMode.AUTO,
) -> None:
    """Count what datasets hold: the paper's composition table and the distributions behind it.

    ```text
    consensusbench stats problems.jsonl
    consensusbench stats test.jsonl train.jsonl --latex composition.tex
    ```

    Problems are those with nodes, and Avg. N(k) is over them; problems without nodes are counted
    beside them. Nothing is scored, and no rollouts are needed.
    """
    check_outputs((csv, latex), datasets)
    with count_progress("counting", None, "problems", hidden=no_progress) as advance_to:
        counted = read_stats(datasets, on_error.value, advance_to)
    if csv is not None:
        write_csv(counted, csv)
    if latex is not None:
        write_latex(counted, latex)
    if as_json:
        print(json.dumps(counted.to_json()))
        return
    console = make_console(color)
    console.print(_composition_table(counted))
    console.print()
    console.print(_distributions(counted.overall))
    console.print()
    for line in _lines(counted):
        console.print(line, markup=False, soft_wrap=True)
    for path in (csv, latex):
        if path is not None:
            console.print(f"written: {path}", markup=False, soft_wrap=True)


def _composition_table(counted: DatasetStats) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Source")
    for heading in ("#Problems", "Avg. N(k)", "Nodes", "With final node", "Without nodes"):
        table.add_column(heading, justify="right")
    sources, totals = composition(counted)
    for name, group in sources:
        table.add_row(Text(one_line(name)), *_cells(group))
    table.add_section()
    for name, group in totals:
        table.add_row(Text(name), *_cells(group), style="bold")
    return table


def _cells(group: Group) -> tuple[str, ...]:
    average = group.average_nodes
    return (
        f"{group.with_nodes:,}",
        "–" if average is None else f"{average:.2f}",
        f"{group.nodes:,}",
        _share(group.with_final, group.with_nodes),
        f"{group.without_nodes:,}",
    )


def _share(part: int, whole: int) -> str:
    return f"{part:,} ({100 * part / whole:.1f} %)" if whole else f"{part:,}"


def _distributions(group: Group) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("Distribution", "Value"):
        table.add_column(heading)
    table.add_column("Count", justify="right")
    table.add_column("")
    for name, distribution in (
        ("nodes of a problem", group.nodes_per_problem),
        ("type of a node", group.types),
        ("expressions of a node", group.expressions_per_node),
        ("derived forms of a node", group.derived_per_node),
        ("support of a node", group.support),
        ("difficulty", group.difficulty),
    ):
        _add(table, name, distribution)
    return table


def _add(table: Table, name: str, distribution: Counter[int] | Counter[str]) -> None:
    """Add the values of a distribution in order, those past a limit as one row."""
    values = sorted(distribution.items())
    shown = values[:_SHOWN_VALUES]
    most = max((count for _, count in values), default=0)
    for place, (value, count) in enumerate(shown):
        bar = "█" * max(1, round(_BAR_CHARS * count / most))
        table.add_row(name if place == 0 else "", str(value), f"{count:,}", Text(bar, style="cyan"))
    rest = sum(count for _, count in values[_SHOWN_VALUES:])
    if rest:
        table.add_row("", f"over {shown[-1][0]}", f"{rest:,}", "")


def _lines(counted: DatasetStats) -> list[str]:
    group = counted.overall
    lines = [
        f"{group.final_nodes:,} of {group.nodes:,} nodes state the final answer; "
        f"{group.only_final:,} problems have no other nodes"
    ]
    for count, what in (
        (group.without_derived, "nodes store no derived forms"),
        (group.without_support, "nodes do not say their support"),
        (group.without_ground_truth, "problems have no ground truth"),
        (group.without_text, "problems have no text"),
    ):
        if count:
            lines.append(f"{count:,} {what}")
    if counted.read.skipped:
        lines.append(
            f"{counted.read.skipped:,} bad rows skipped (first: {counted.read.reasons[0]})"
        )
    return lines
