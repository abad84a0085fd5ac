"""What a dataset is made of: the paper's composition table and the distributions behind it.

A problem counts towards the table (``#Problems``, ``Avg. N(k)``) if it has nodes, as the
paper's benchmark has no others; problems without are counted beside it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from consensusbench.evaluation.scored import difficulty_of
from consensusbench.outputs import escaped, write_rows
from consensuspr.data import OnError, Problem, ReadReport, atomic_file, read_problems

UNKNOWN = "unknown"


@dataclass(slots=True)
class Group:
    """Counts of a group of problems; every distribution maps a value to how often it is met.

    Attributes:
        with_nodes: problems with at least one node.
        without_nodes: problems without.
        without_ground_truth: problems without an answer, with nodes or not.
        without_text: problems without their text.
        nodes: nodes of all problems.
        final_nodes: nodes that state the final answer.
        with_final: problems with such a node.
        only_final: problems all of whose nodes are such.
        nodes_per_problem: distribution, problems without nodes under 0.
        types: nodes by type.
        expressions_per_node: distribution.
        derived_per_node: distribution over nodes that have the key ``derived``.
        without_derived: nodes that do not have it.
        support: distribution over nodes that have the key ``support``.
        without_support: nodes that do not have it.
        difficulty: problems by group of difficulty.
    """

    with_nodes: int = 0
    without_nodes: int = 0
    without_ground_truth: int = 0
    without_text: int = 0
    nodes: int = 0
    final_nodes: int = 0
    with_final: int = 0
    only_final: int = 0
    nodes_per_problem: Counter[int] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)
    expressions_per_node: Counter[int] = field(default_factory=Counter)
    derived_per_node: Counter[int] = field(default_factory=Counter)
    without_derived: int = 0
    support: Counter[int] = field(default_factory=Counter)
    without_support: int = 0
    difficulty: Counter[str] = field(default_factory=Counter)

    @property
    def average_nodes(self) -> float | None:
        """Avg. N(k): nodes a problem, over problems with nodes; None without any."""
        return self.nodes / self.with_nodes if self.with_nodes else None

    def add(self, problem: Problem) -> None:
        """Count a problem."""
        nodes = problem.nodes
        finals = sum(node.is_final for node in nodes)
        self.with_nodes += bool(nodes)
        self.without_nodes += not nodes
        self.without_ground_truth += problem.ground_truth is None
        self.without_text += not problem.problem.strip()
        self.nodes += len(nodes)
        self.final_nodes += finals
        self.with_final += finals > 0
        self.only_final += 0 < finals == len(nodes)
        self.nodes_per_problem[len(nodes)] += 1
        self.difficulty[difficulty_of(problem.metadata) or UNKNOWN] += 1
        for node in nodes:
            self.types[node.type] += 1
            self.expressions_per_node[len(node.expressions)] += 1
            if node.derived is None:
                self.without_derived += 1
            else:
                self.derived_per_node[len(node.derived)] += 1
            if node.support is None:
                self.without_support += 1
            else:
                self.support[node.support] += 1

    def to_json(self) -> dict[str, Any]:
        """Return the counts as plain values; keys of distributions in order, as text."""
        return {
            "problems": self.with_nodes,
            "average_nodes": self.average_nodes,
            "without_nodes": self.without_nodes,
            "without_ground_truth": self.without_ground_truth,
            "without_text": self.without_text,
            "nodes": self.nodes,
            "final_nodes": self.final_nodes,
            "with_final": self.with_final,
            "only_final": self.only_final,
            "nodes_per_problem": _in_order(self.nodes_per_problem),
            "types": _in_order(self.types),
            "expressions_per_node": _in_order(self.expressions_per_node),
            "derived_per_node": _in_order(self.derived_per_node),
            "without_derived": self.without_derived,
            "support": _in_order(self.support),
            "without_support": self.without_support,
            "difficulty": _in_order(self.difficulty),
        }


def _in_order(distribution: Counter[Any]) -> dict[str, int]:
    return {str(value): distribution[value] for value in sorted(distribution)}


@dataclass(slots=True)
class DatasetStats:
    """Counts of one dataset or several.

    Attributes:
        overall: all problems.
        by_source: by data source, in the order of first appearance.
        by_split: by ``test``, ``train`` and ``unknown``.
        read: rows read and skipped.
    """

    overall: Group = field(default_factory=Group)
    by_source: dict[str, Group] = field(default_factory=dict)
    by_split: dict[str, Group] = field(default_factory=dict)
    read: ReadReport = field(default_factory=ReadReport)

    def add(self, problem: Problem) -> None:
        """Count a problem."""
        self.overall.add(problem)
        self.by_source.setdefault(problem.data_source, Group()).add(problem)
        self.by_split.setdefault(problem.split or UNKNOWN, Group()).add(problem)

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "overall": self.overall.to_json(),
            "by_source": {name: group.to_json() for name, group in self.by_source.items()},
            "by_split": {name: group.to_json() for name, group in self.by_split.items()},
            "skipped_rows": self.read.skipped,
        }


def read_stats(
    paths: Iterable[str | os.PathLike[str]],
    on_error: OnError = "stop",
    progress: Callable[[int], None] = lambda done: None,
) -> DatasetStats:
    """Count the problems of datasets, in the memory of one row.

    Args:
        paths: the files; a problem that is in two of them counts twice.
        on_error: what a bad row does.
        progress: told how many problems are counted.

    Raises:
        DataError: a file is bad, or a row of it and ``on_error`` is ``"stop"``.
    """
    stats = DatasetStats()
    for path in paths:
        report = ReadReport()
        for problem in read_problems(path, on_error, report):
            stats.add(problem)
            if report.rows % 256 == 0:
                progress(stats.read.rows + report.rows)
        stats.read.rows += report.rows
        stats.read.skipped += report.skipped
        stats.read.reasons += report.reasons
        progress(stats.read.rows)
    return stats


# MERGED The composition of a dataset in the form of the paper's table 1, as CSV and as LaTeX.

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
