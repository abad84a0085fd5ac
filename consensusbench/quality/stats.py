"""What a dataset is made of: the paper's composition table and the distributions behind it.

A problem counts towards the table (``#Problems``, ``Avg. N(k)``) if it has nodes, as the
paper's benchmark has no others; problems without are counted beside it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Final

from consensusbench.evaluation.scored import difficulty_of
from consensusbench.tables import (
    Cell,
    Row,
    Table,
    latex_table,
    latex_text,
    number,
    words,
)
from consensuspr.console import count_of
from consensuspr.data import OnError, Problem, ReadReport, read_problems

UNKNOWN: Final = "unknown"
NO_SOURCE: Final = "(none)"
# Order and names of the last rows of the paper's table.
TOTALS: Final = {"test": "Total (Test)", "train": "Total (Train)", UNKNOWN: "Total (no split)"}

# Of a distribution in the terminal; --json has all of it.
SHOWN_VALUES: Final = 16
_BAR_CHARS: Final = 40


@dataclass(slots=True)
class Composition:
    """Counts of a group of problems; every distribution maps a value to how often it is met.

    ``with_final`` counts problems with a node that states the final answer, ``only_final`` those
    all of whose nodes do.  Nodes without the keys ``derived``, ``support`` and ``weight`` are
    counted apart.
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
    without_weight: int = 0
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
            self.without_weight += node.weight is None
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
        said = {one.name: getattr(self, one.name) for one in fields(self)}
        said = {"problems": said.pop("with_nodes"), "average_nodes": self.average_nodes} | said
        return {
            name: {str(key): value[key] for key in sorted(value)}
            if isinstance(value, Counter)
            else value
            for name, value in said.items()
        }


@dataclass(slots=True)
class DatasetStats:
    """Counts of one dataset or several; sources and splits in the order of first appearance."""

    overall: Composition = field(default_factory=Composition)
    by_source: dict[str, Composition] = field(default_factory=dict)
    by_split: dict[str, Composition] = field(default_factory=dict)
    read: ReadReport = field(default_factory=ReadReport)

    def add(self, problem: Problem) -> None:
        """Count a problem."""
        self.overall.add(problem)
        self.by_source.setdefault(problem.data_source, Composition()).add(problem)
        self.by_split.setdefault(problem.split or UNKNOWN, Composition()).add(problem)

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "overall": self.overall.to_json(),
            "by_source": {name: one.to_json() for name, one in self.by_source.items()},
            "by_split": {name: one.to_json() for name, one in self.by_split.items()},
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


def composition_table(stats: DatasetStats) -> Table:
    """Return the paper's table 1, sources and then totals by split, with more columns."""

    def row(name: str, one: Composition) -> Row:
        share = f"({100 * one.with_final / one.with_nodes:.1f} %)" if one.with_nodes else ""
        with_final = Cell(one.with_final, note=share)
        average = one.average_nodes
        return [name, one.with_nodes, average, one.nodes, with_final, one.without_nodes]

    return Table(
        "",
        [
            words("Source", "source"),
            number("#Problems", "problems"),
            number("Avg. N(k)", "average_nodes", decimals=2),
            number("Nodes", "nodes"),
            number("With final node", "with_final"),
            number("Without nodes", "without_nodes"),
        ],
        [[row(name, one) for name, one in section] for section in _sections(stats)],
        bold=1,
    )


def distribution_table(counts: Composition) -> Table:
    """Return the distributions with a bar each, values past a limit as one row."""
    rows: list[Row] = []
    for name, distribution in (
        ("nodes of a problem", counts.nodes_per_problem),
        ("type of a node", counts.types),
        ("expressions of a node", counts.expressions_per_node),
        ("derived forms of a node", counts.derived_per_node),
        ("support of a node", counts.support),
        ("difficulty", counts.difficulty),
    ):
        values: list[tuple[int | str, int]] = sorted(distribution.items())
        most = max((count for _, count in values), default=0)
        for place, (value, count) in enumerate(values[:SHOWN_VALUES]):
            bar = Cell("█" * max(1, round(_BAR_CHARS * count / most)), style="cyan")
            rows.append([name if place == 0 else "", str(value), count, bar])
        if rest := sum(count for _, count in values[SHOWN_VALUES:]):
            rows.append(["", f"over {values[SHOWN_VALUES - 1][0]}", rest, ""])
    columns = [words("Distribution"), words("Value"), number("Count"), words("")]
    return Table("", columns, [rows])


def stats_notes(stats: DatasetStats) -> Iterator[str]:
    """Yield what is counted beside the tables."""
    counts = stats.overall
    yield (
        f"{counts.final_nodes:,} of {counts.nodes:,} nodes state the final answer; "
        f"{counts.only_final:,} problems have no other nodes"
    )
    for count, what in (
        (counts.without_derived, "nodes store no derived forms"),
        (counts.without_support, "nodes do not say their support"),
        (counts.without_weight, "nodes have no weight"),
        (counts.without_ground_truth, "problems have no ground truth"),
        (counts.without_text, "problems have no text"),
    ):
        if count:
            yield f"{count:,} {what}"
    if stats.read.skipped:
        yield f"{count_of(stats.read.skipped, 'bad row')} skipped (first: {stats.read.reasons[0]})"


def latex_of(stats: DatasetStats) -> str:
    """Return the paper's table 1 as LaTeX that needs ``booktabs``."""

    def row(name: str, one: Composition) -> list[str]:
        average = one.average_nodes
        return [name, str(one.with_nodes), "--" if average is None else f"{average:.2f}"]

    sources, totals = _sections(stats)
    rows = [row(latex_text(name), one) for name, one in sources]
    split_names = [(name.partition(" "), one) for name, one in totals]
    bold_rows = [row(rf"\textbf{{{total}}} {split}", one) for (total, _, split), one in split_names]
    return latex_table(
        "Composition and statistics of the dataset.",
        [[["Source", r"\#Problems", r"Avg.\ $N(k)$"]], rows, bold_rows],
    )


def _sections(stats: DatasetStats) -> list[list[tuple[str, Composition]]]:
    """Return the rows of the table: sources by name, then totals by split."""
    totals = [(name, stats.by_split[key]) for key, name in TOTALS.items() if key in stats.by_split]
    return [[(name or NO_SOURCE, one) for name, one in stats.by_source.items()], totals]
