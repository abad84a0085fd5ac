"""What became of every rollout and every problem that was read, in numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field

from consensusbench.construction.values import Reason
from consensuspr.data import Row


@dataclass(slots=True)
class RolloutCounts:
    """What became of the rollouts; all but ``used`` add up to ``read``.

    Attributes:
        read: good rows.
        skipped: bad rows that were passed over; not among those read.
        other_model: left out by model.
        unknown_problem: of problems that are not listed.
        oversize: longer than the limit.
        unusable_problem: of problems without ground truth, or whose rows conflict.
        repeated: the same text for the same problem once more.
        incorrect: verified as wrong, without an answer, or labelled so.
        undecided: the answer was not decided within its limits, or the label is missing.
        correct: distinct and correct.
        used: chosen among the correct ones of problems that were worked on.
    """

    read: int = 0
    skipped: int = 0
    other_model: int = 0
    unknown_problem: int = 0
    oversize: int = 0
    unusable_problem: int = 0
    repeated: int = 0
    incorrect: int = 0
    undecided: int = 0
    correct: int = 0
    used: int = 0

    def to_json(self) -> Row:
        """Return the counts as plain values."""
        return asdict(self)


@dataclass(slots=True)
class ProblemCounts:
    """What became of the problems; written and excluded ones add up to all.

    Attributes:
        written: problems in the output, by data source.
        nodes: their nodes, by data source.
        excluded: by reason.
        examples: the first problem of each reason, with its detail.
        nodes_per_problem: how many problems have so many nodes.
        dropped: conclusions that are no node, by stage and reason.
    """

    written: Counter[str] = field(default_factory=Counter)
    nodes: Counter[str] = field(default_factory=Counter)
    excluded: Counter[Reason] = field(default_factory=Counter)
    examples: dict[Reason, str] = field(default_factory=dict)
    nodes_per_problem: Counter[int] = field(default_factory=Counter)
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """All problems."""
        return self.written.total() + self.excluded.total()

    def write(self, data_source: str, num_nodes: int) -> None:
        """Count a problem of the output."""
        self.written[data_source] += 1
        self.nodes[data_source] += num_nodes
        self.nodes_per_problem[num_nodes] += 1

    def exclude(self, reason: Reason, problem_id: str, detail: str) -> None:
        """Count a problem that is left out."""
        self.excluded[reason] += 1
        self.examples.setdefault(reason, f"{problem_id!r}: {detail}")

    def to_json(self) -> Row:
        """Return the counts as plain values."""
        written = self.written.total()
        dropped: dict[str, dict[str, int]] = {}
        for (stage, reason), count in sorted(self.dropped.items()):
            dropped.setdefault(stage, {})[reason] = count
        return {
            "read": self.total,
            "written": written,
            "excluded": dict(sorted(self.excluded.items())),
            "examples": dict(sorted(self.examples.items())),
            "nodes": self.nodes.total(),
            "nodes_per_problem": self.nodes.total() / written if written else None,
            "problems_by_nodes": {
                str(nodes): count for nodes, count in sorted(self.nodes_per_problem.items())
            },
            "by_data_source": {
                source: {"problems": count, "nodes": self.nodes[source]}
                for source, count in sorted(self.written.items())
            },
            "dropped": dropped,
        }
