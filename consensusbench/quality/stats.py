"""Statistics of datasets: the paper's composition table and the distributions behind it.

A problem counts in the table (``#Problems``, ``Avg. N(k)``) if it has nodes, as the paper's
benchmark has no others; problems without nodes are counted beside it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Final

from consensusbench.evaluation.scored import difficulty_of
from consensusbench.tables import Cell, Row, Table, number, words
from consensuspr.console import count_of
from consensuspr.data import OnError, Problem, ReadReport, read_problems

UNKNOWN: Final = "unknown"
NO_SOURCE: Final = "(none)"
# Order and names of the last rows of the paper's table.
TOTALS: Final = {"test": "Total (Test)", "train": "Total (Train)", UNKNOWN: "Total (no split)"}
# Of a distribution in the terminal; --json has all of it.
SHOWN_VALUES: Final = 16


@dataclass(slots=True)
class Composition:
    """Counts of a group of problems; every distribution maps a value to its frequency.

    ``with_final`` counts problems with a node that states the final answer, ``only_final`` those
    all of whose nodes do.
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
        """Avg. N(k): nodes a problem, over problems with nodes."""
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
    """Counts of datasets; sources and splits in the order of first appearance."""

    overall: Composition = field(default_factory=Composition)
    by_source: dict[str, Composition] = field(default_factory=dict)
    by_split: dict[str, Composition] = field(default_factory=dict)
    skipped: int = 0

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
            "skipped_rows": self.skipped,
        }


def read_stats(
    paths: Iterable[str | os.PathLike[str]],
    on_error: OnError = "stop",
    progress: Callable[[int], None] = lambda done: None,
) -> DatasetStats:
    """Count the problems of datasets, in the memory of one row.

    Raises:
        DataError: a file is bad, or a row of it and ``on_error`` is ``"stop"``.
    """
    stats = DatasetStats()
    done = 0
    for path in paths:
        report = ReadReport()
        for problem in read_problems(path, on_error, report):
            stats.add(problem)
            done += 1
            progress(done)
        stats.skipped += report.skipped
    return stats


def composition_table(stats: DatasetStats) -> Table:
    """Return the paper's table 1, sources and then totals by split, with more columns."""

    def row(name: str, one: Composition) -> Row:
        share = f"({100 * one.with_final / one.with_nodes:.1f} %)" if one.with_nodes else ""
        with_final = Cell(one.with_final, note=share)
        average = one.average_nodes
        return [name, one.with_nodes, average, one.nodes, with_final, one.without_nodes]

    headings = ("Nodes", "With final node", "Without nodes")
    return Table(
        "Composition",
        [
            words("Source"),
            number("#Problems"),
            number("Avg. N(k)", decimals=2),
            *map(number, headings),
        ],
        [
            [row(name or NO_SOURCE, one) for name, one in stats.by_source.items()],
            [row(name, stats.by_split[key]) for key, name in TOTALS.items()
             if key in stats.by_split],
        ],
        bold=1,
    )  # fmt: skip


def distribution_table(counts: Composition) -> Table:
    """Return the distributions, values past a limit as one row."""
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
        for place, (value, count) in enumerate(values[:SHOWN_VALUES]):
            rows.append([name if place == 0 else "", str(value), count])
        if rest := sum(count for _, count in values[SHOWN_VALUES:]):
            rows.append(["", f"over {values[SHOWN_VALUES - 1][0]}", rest])
    return Table("", [words("Distribution"), words("Value"), number("Count")], [rows])


def stats_notes(stats: DatasetStats) -> Iterator[str]:
    """Yield the notes below the tables."""
    counts = stats.overall
    yield (
        f"{counts.final_nodes:,} of {counts.nodes:,} nodes state the final answer; "
        f"{counts.only_final:,} problems have no other nodes"
    )
    for count, what in (
        (counts.without_derived, "nodes store no derived forms"),
        (counts.without_support, "nodes have no support"),
        (counts.without_weight, "nodes have no weight"),
        (counts.without_ground_truth, "problems have no ground truth"),
        (counts.without_text, "problems have no text"),
    ):
        if count:
            yield f"{count:,} {what}"
    if stats.skipped:
        yield f"{count_of(stats.skipped, 'bad row')} skipped"
