"""The values of a build: problems with their rollouts, outcomes, and counts.

They travel to worker processes and back.  Only :class:`ProblemTask` holds the texts of rollouts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from consensusbench.construction.budgets import Stated
from consensusbench.extraction.types import CorrectRollout, Dropped, Extraction
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
class UsedRollout:
    """A rollout that was compared, without its text; ``sampling`` as far as its row says so."""

    rollout_id: str
    model: str
    sampling: Row | None = None

    def to_row(self) -> Row:
        """Return it as it stands in files."""
        row: Row = {"rollout_id": self.rollout_id, "model": self.model}
        return row | ({"sampling": self.sampling} if self.sampling else {})


@dataclass(frozen=True, slots=True)
class ProblemRollouts:
    """A problem whose rollouts are chosen.

    Attributes:
        problem: without nodes.
        sampled: the chosen rollouts.
        correct: distinct correct rollouts that there were to choose from.
        inputs: digest of the problem and of the chosen rollouts' texts.
        provenance: versions, and the settings of selection and extraction.
        stated: the most that a correct rollout states; None where a file does not say.
        wrong: distinct rollouts that are wrong.
    """

    problem: Problem
    sampled: tuple[UsedRollout, ...]
    correct: int
    inputs: str
    provenance: Row
    stated: Stated | None = None
    wrong: int = 0

    def to_row(self) -> Row:
        """Return what files say of it beside the problem."""
        return {
            "correct_rollouts": self.correct,
            "wrong_rollouts": self.wrong,
            "stated": None if self.stated is None else self.stated.to_row(),
            "rollouts": [one.to_row() for one in self.sampled],
            "inputs": self.inputs,
            "provenance": self.provenance,
        }


@dataclass(frozen=True, slots=True)
class ProblemTask:
    """The work on one problem: its rollouts with their texts, or the extraction made of them."""

    chosen: ProblemRollouts
    rollouts: tuple[CorrectRollout, ...] = ()
    extraction: Extraction | None = None


@dataclass(frozen=True, slots=True)
class Excluded:
    """A problem that does not come into the dataset, and one clause for a person on why."""

    problem: Problem
    reason: ExclusionReason
    detail: str
    stage: Stage = "select"

    def why(self) -> Row:
        """Return what files say of it beside the problem."""
        return {"stage": self.stage, "reason": self.reason, "detail": self.detail}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a task.

    Attributes:
        extraction: stage 2; None where it failed.
        nodes: stage 3; None where it failed or was not asked for.
        dropped: by stage 3.
    """

    chosen: ProblemRollouts
    extraction: Extraction | None = None
    nodes: tuple[Node, ...] | None = None
    dropped: tuple[Dropped, ...] = ()
    failure: Excluded | None = None


# A problem at the end, and on the way: what is finished passes through.
Finished: TypeAlias = Outcome | Excluded
Item: TypeAlias = ProblemTask | Finished

# Of an engine, in the order of its items; closing it ends what is under way.
Stream: TypeAlias = Generator[Finished, None, None]


class BuildProgress:
    """Listens to a build; the base of what shows it, and silent."""

    def read(self, rollouts: int) -> None:
        """Take the number of rollouts that are read."""

    def begin(self, problems: int | None) -> None:
        """Take the number of problems, where it is known: reading is over."""

    def work(self, problems: int) -> None:
        """Take the number of problems that are done."""

    def note(self, sentence: str) -> None:
        """Take a sentence that a person should read now."""


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


@dataclass(slots=True)
class ProblemCounts:
    """What became of the problems.

    Attributes:
        written: problems in the output, by data source; so are ``nodes``.
        examples: the first problem of each reason, with its detail.
        nodes_per_problem: how many problems have so many nodes.
        dropped: conclusions that are no node, by stage and reason.
    """

    written: Counter[str] = field(default_factory=Counter)
    nodes: Counter[str] = field(default_factory=Counter)
    excluded: Counter[ExclusionReason] = field(default_factory=Counter)
    examples: dict[ExclusionReason, str] = field(default_factory=dict)
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

    def exclude(self, excluded: Excluded) -> None:
        """Count a problem that is left out."""
        self.excluded[excluded.reason] += 1
        example = f"{excluded.problem.problem_id!r}: {excluded.detail}"
        self.examples.setdefault(excluded.reason, example)

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
