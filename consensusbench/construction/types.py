"""The values of a build: problems with their rollouts, what became of them, and counts.

They travel to worker processes and back.  Only :class:`ProblemTask` holds the texts of rollouts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from consensusbench.construction.budgets import Stated
from consensusbench.extraction.types import CorrectRollout, Dropped, Extraction
from consensusbench.tally import Tally
from consensuspr.data import Node, Problem, Row

# Seconds for one problem; ordinary ones take hundredths of one.
DEFAULT_TIME_LIMIT_S = 60.0

Split: TypeAlias = Literal["train", "test"]
# Why a problem is not in the dataset; docs/build-datasets.md explains each.
ExclusionReason: TypeAlias = Literal[
    "no_rollouts",
    "no_ground_truth",
    "conflicting_rows",
    "few_correct",
    "few_nodes",
    "time_limit",
    "failed",
]
Stage: TypeAlias = Literal["select", "extract", "refine"]


@dataclass(frozen=True, slots=True)
class BuildRecord:
    """How the nodes of a problem are made, as files record it.

    Attributes:
        correct_rollouts, wrong_rollouts: distinct rollouts of the problem.
        stated: the most that a correct rollout states; None for a training run.
        rollouts: id, model and sampling of the compared rollouts.
        inputs: digest of the problem and of the compared rollouts' texts.
        provenance: versions, and the settings of selection and extraction.
    """

    correct_rollouts: int
    wrong_rollouts: int
    stated: Stated | None
    rollouts: Annotated[tuple[Row, ...], Field(min_length=1)]
    inputs: str
    provenance: Row


@dataclass(frozen=True, slots=True)
class ProblemTask:
    """The work on one problem: its rollouts with their texts, or the extraction made of them."""

    problem: Problem
    record: BuildRecord
    rollouts: tuple[CorrectRollout, ...] = ()
    extraction: Extraction | None = None


@dataclass(frozen=True, slots=True)
class Excluded:
    """A problem that is left out of the dataset, and one clause for a person on why."""

    problem: Problem
    reason: ExclusionReason
    detail: str
    stage: Stage = "select"

    def why(self) -> Row:
        """Return what files record beside the problem."""
        return {"stage": self.stage, "reason": self.reason, "detail": self.detail}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a task: ``extraction`` of stage 2, ``nodes`` and ``dropped`` of stage 3."""

    problem: Problem
    record: BuildRecord
    extraction: Extraction | None = None
    nodes: tuple[Node, ...] | None = None
    dropped: tuple[Dropped, ...] = ()
    failure: Excluded | None = None


# A problem at the end, and on the way: engines pass finished ones through.
Finished: TypeAlias = Outcome | Excluded
Item: TypeAlias = ProblemTask | Finished

# Of an engine, in the order of its items; closing it ends the work.
Stream: TypeAlias = Generator[Finished, None, None]


@dataclass(slots=True)
class RolloutCounts:
    """What became of the rollouts; all but ``skipped`` and ``used`` add up to ``read``.

    Attributes:
        read: good rows.
        skipped: bad rows.
        other_model: left out by model.
        unknown_problem: of problems that are not listed.
        oversize: longer than the limit.
        unusable_problem: of problems without ground truth, or whose rows conflict.
        repeated: the same text for the same problem once more.
        incorrect: verified as wrong, without an answer, or labelled so.
        undecided: the answer was not decided within its limits, or the label is missing.
        correct: distinct and correct.
        used: correct ones that were compared.
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


@dataclass(slots=True)
class ProblemCounts:
    """What became of the problems.

    Attributes:
        written, nodes: problems in the output and their nodes, by data source.
        nodes_per_problem: number of problems by number of nodes.
        dropped: conclusions that are no node, by stage and reason.
    """

    written: Counter[str] = field(default_factory=Counter)
    nodes: Counter[str] = field(default_factory=Counter)
    excluded: Tally[ExclusionReason] = field(default_factory=Tally)
    nodes_per_problem: Counter[int] = field(default_factory=Counter)
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)

    def write(self, data_source: str, num_nodes: int) -> None:
        """Count a problem of the output."""
        self.written[data_source] += 1
        self.nodes[data_source] += num_nodes
        self.nodes_per_problem[num_nodes] += 1

    def to_json(self) -> Row:
        """Return the counts as plain values."""
        written = self.written.total()
        dropped: dict[str, dict[str, int]] = {}
        for (stage, reason), count in sorted(self.dropped.items()):
            dropped.setdefault(stage, {})[reason] = count
        return {
            "read": written + self.excluded.total(),
            "written": written,
            "excluded": dict(sorted(self.excluded.items())),
            "examples": dict(sorted(self.excluded.examples.items())),
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
