"""Statistics of datasets: the paper's composition table and the distributions behind it.

A problem counts in the table (``#Problems``, ``Avg. N(k)``) if it has nodes, as the paper's
benchmark has no others; problems without nodes are counted beside it.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
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

# Keys of the JSON form.  Only problems with nodes count in ``problems``; ``with_final`` are those
# with a node that states the final answer, ``only_final`` those all of whose nodes do.
COUNTS: Final = ("problems", "without_nodes", "nodes", "final_nodes", "with_final", "only_final")
DISTRIBUTIONS: Final = {
    "nodes_per_problem": "nodes of a problem",
    "types": "type of a node",
    "expressions_per_node": "expressions of a node",
    "derived_per_node": "derived forms of a node",
    "support": "support of a node",
    "difficulty": "difficulty",
}


@dataclass(slots=True)
class Composition:
    """Counts of a group of problems, and distributions: how often each value occurs."""

    counts: Counter[str] = field(default_factory=Counter)
    distributions: dict[str, Counter[Any]] = field(
        default_factory=lambda: {name: Counter() for name in DISTRIBUTIONS}
    )

    @property
    def average_nodes(self) -> float | None:
        """Avg. N(k): nodes a problem, over problems with nodes."""
        return self.counts["nodes"] / self.counts["problems"] if self.counts["problems"] else None

    def add(self, problem: Problem) -> None:
        """Count a problem."""
        nodes = problem.nodes
        finals = sum(node.is_final for node in nodes)
        self.counts += Counter(
            problems=int(bool(nodes)),
            without_nodes=int(not nodes),
            nodes=len(nodes),
            final_nodes=finals,
            with_final=int(finals > 0),
            only_final=int(0 < finals == len(nodes)),
        )
        values: dict[str, Iterable[Hashable]] = {
            "nodes_per_problem": [len(nodes)],
            "types": [node.type for node in nodes],
            "expressions_per_node": [len(node.expressions) for node in nodes],
            "derived_per_node": [len(n.derived) for n in nodes if n.derived is not None],
            "support": [node.support for node in nodes if node.support is not None],
            "difficulty": [difficulty_of(problem.metadata) or UNKNOWN],
        }
        for name, of_problem in values.items():
            self.distributions[name].update(of_problem)

    def to_json(self) -> dict[str, Any]:
        """Return the counts as plain values; keys of distributions in order, as text."""
        row: dict[str, Any] = {name: self.counts[name] for name in COUNTS}
        for name, found in self.distributions.items():
            row[name] = {str(value): found[value] for value in sorted(found)}
        return row | {"average_nodes": self.average_nodes}


@dataclass(slots=True)
class DatasetStats:
    """Counts of datasets; sources and splits in the order of first appearance."""

    overall: Composition = field(default_factory=Composition)
    by_source: dict[str, Composition] = field(default_factory=lambda: defaultdict(Composition))
    by_split: dict[str, Composition] = field(default_factory=lambda: defaultdict(Composition))
    skipped: int = 0

    def add(self, problem: Problem) -> None:
        """Count a problem."""
        self.overall.add(problem)
        self.by_source[problem.data_source].add(problem)
        self.by_split[problem.split or UNKNOWN].add(problem)

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "overall": self.overall.to_json(),
            "by_source": {name: group.to_json() for name, group in self.by_source.items()},
            "by_split": {name: group.to_json() for name, group in self.by_split.items()},
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
    stats, done = DatasetStats(), count(1)
    for path in paths:
        report = ReadReport()
        for problem in read_problems(path, on_error, report):
            stats.add(problem)
            progress(next(done))
        stats.skipped += report.skipped
    return stats


def composition_table(stats: DatasetStats) -> Table:
    """Return the paper's table 1, sources and then totals by split, with more columns."""

    def row(name: str, group: Composition) -> Row:
        counts = group.counts
        share = (
            f"({100 * counts['with_final'] / counts['problems']:.1f} %)"
            if group.average_nodes
            else ""
        )
        with_final = Cell(counts["with_final"], note=share)
        sizes = (counts["problems"], group.average_nodes, counts["nodes"])
        return [name, *sizes, with_final, counts["without_nodes"]]

    columns = [words("Source"), number("#Problems"), number("Avg. N(k)", decimals=2)]
    columns += map(number, ("Nodes", "With final node", "Without nodes"))
    sources = [row(name or NO_SOURCE, group) for name, group in stats.by_source.items()]
    totals = [row(TOTALS[key], stats.by_split[key]) for key in TOTALS if key in stats.by_split]
    return Table("Composition", columns, [sources, totals], bold=1)


def distribution_table(group: Composition) -> Table:
    """Return the distributions, values past a limit as one row."""
    rows: list[Row] = []
    for name, title in DISTRIBUTIONS.items():
        values = sorted(group.distributions[name].items())
        shown = [(str(value), times) for value, times in values[:SHOWN_VALUES]]
        if beyond := sum(times for _, times in values[SHOWN_VALUES:]):
            shown.append((f"over {values[SHOWN_VALUES - 1][0]}", beyond))
        rows += [["" if place else title, *pair] for place, pair in enumerate(shown)]
    return Table("", [words("Distribution"), words("Value"), number("Count")], [rows])


def stats_notes(stats: DatasetStats) -> Iterator[str]:
    """Yield the notes below the tables."""
    counts = stats.overall.counts
    yield (
        f"{counts['final_nodes']:,} of {counts['nodes']:,} nodes state the final answer; "
        f"{counts['only_final']:,} problems have no other nodes"
    )
    if stats.skipped:
        yield f"{count_of(stats.skipped, 'bad row')} skipped"
