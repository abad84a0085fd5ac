"""The composition of a dataset in the form of the paper's table 1, as CSV and as LaTeX."""

from __future__ import annotations

import os
from typing import Final

from consensusbench.csv_rows import write_rows
from consensusbench.inspection.stats import UNKNOWN, DatasetStats, Group
from consensusbench.latex import escaped
from consensuspr.data import atomic_file

# Order and names of the last rows of the paper's table.
TOTALS: Final = {"test": "Total (Test)", "train": "Total (Train)", UNKNOWN: "Total (no split)"}
NO_SOURCE: Final = "(none)"

_COLUMNS: Final = ("problems", "average_nodes", "nodes", "with_final", "without_nodes")


def composition(stats: DatasetStats) -> tuple[list[tuple[str, Group]], list[tuple[str, Group]]]:
    """Return the rows of the table: sources by name, then totals by split."""
    sources = [(name or NO_SOURCE, group) for name, group in stats.by_source.items()]
    totals = [
        (name, stats.by_split[split]) for split, name in TOTALS.items() if split in stats.by_split
    ]
    return sources, totals


def write_csv(stats: DatasetStats, path: str | os.PathLike[str]) -> None:
    """Write a row for each source and each total; the file appears complete or not at all.

    Raises:
        InputError: the file cannot be written.
    """
    rows: list[list[object]] = [["source", *_COLUMNS]]
    for part in composition(stats):
        for name, group in part:
            known = group.to_json()
            rows.append([name, *(known[column] for column in _COLUMNS)])
    write_rows(rows, path)


def write_latex(stats: DatasetStats, path: str | os.PathLike[str]) -> None:
    """Write the paper's table 1; the file appears complete or not at all.

    Raises:
        InputError: the file cannot be written.
    """
    with atomic_file(path) as stream:
        stream.write(latex_of(stats).encode("utf-8", "replace"))


def latex_of(stats: DatasetStats) -> str:
    """Return the paper's table 1 as LaTeX that needs ``booktabs``."""
    sources, totals = composition(stats)
    return "\n".join(
        [
            r"\begin{table}[t]",
            r"\centering",
            r"\caption{Composition and statistics of the dataset.}",
            r"\begin{tabular}{lcc}",
            r"\toprule",
            r"Source & \#Problems & Avg.\ $N(k)$ \\",
            r"\midrule",
            *(_line(escaped(name), group) for name, group in sources),
            r"\midrule",
            *(_line(_bold_total(name), group) for name, group in totals),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _line(name: str, group: Group) -> str:
    average = group.average_nodes
    shown = "--" if average is None else f"{average:.2f}"
    return rf"{name} & {group.with_nodes} & {shown} \\"


def _bold_total(name: str) -> str:
    total, _, split = name.partition(" ")
    return rf"\textbf{{{total}}} {split}"
