"""When a problem's time is up: known to the worker and to the side that sees how it ended."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Generator
from dataclasses import asdict, dataclass, field
from typing import Literal, Protocol, TypeAlias

from consensusbench.extraction.refine import RefineSettings, refine
from consensusbench.extraction.types import CorrectRollout, Dropped, Extraction
from consensuspr.data import Node, OnError, Problem, Row
from consensuspr.errors import ConsensusPRError

# Seconds of processor time for one problem; ordinary ones take hundredths of one.
DEFAULT_TIME_LIMIT_S = 60.0

# What a problem may take on the clock, in its limits of processor time: on a busy machine it
# waits, and one that sleeps uses no processor at all.
CLOCK_FACTOR = 20.0

# The signals that end a process whose time is up; nothing catches them.
TIME_IS_UP = (signal.SIGPROF, signal.SIGALRM)


# MERGED What travels through the pipeline: a problem with its rollouts, and what became of it.
#
# Everything here is small and pickles: it goes to worker processes and back.  The texts of
# rollouts travel in :class:`Task` only, and only there.

# Why a problem is not in the dataset; docs/construction.md explains each.
Reason: TypeAlias = Literal[
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
class Sampled:
    """A rollout that was looked at, without its text.

    Attributes:
        rollout_id: its name, unique among those of its problem.
        model: who wrote it, empty where unknown.
        sampling: how it was sampled, as far as its row says so.
    """

    rollout_id: str
    model: str
    sampling: Row = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """A problem whose rollouts are chosen.

    Attributes:
        problem: without nodes.
        sampled: the chosen rollouts.
        correct: distinct correct rollouts that there were to choose from.
        inputs: digest of the problem and of the chosen rollouts' texts.
        provenance: versions, and the settings of selection and extraction.
    """

    problem: Problem
    sampled: tuple[Sampled, ...]
    correct: int
    inputs: str
    provenance: Row


@dataclass(frozen=True, slots=True)
class Excluded:
    """A problem that does not come into the dataset.

    Attributes:
        problem: without nodes.
        reason: for counting.
        detail: one clause for a person, naming value and limit.
        stage: where that was found.
    """

    problem: Problem
    reason: Reason
    detail: str
    stage: Stage = "select"


@dataclass(frozen=True, slots=True)
class Task:
    """The work on one problem.

    Attributes:
        group: the problem.
        rollouts: the chosen ones with their texts; empty where the extraction is given.
        extraction: what stage 2 made of them, None where that is still to be done.
    """

    group: Group
    rollouts: tuple[CorrectRollout, ...] = ()
    extraction: Extraction | None = None

    @property
    def num_chars(self) -> int:
        """Characters of the rollouts' texts."""
        return sum(len(one.response) for one in self.rollouts)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no result.

    Attributes:
        reason: ``time_limit``, else ``failed``.
        detail: one clause.
    """

    reason: Literal["time_limit", "failed"]
    detail: str


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a task.

    Attributes:
        extraction: stage 2; None where it failed.
        nodes: stage 3; None where it failed or was not asked for.
        dropped: by stage 3.
        failure: why something is missing.
        extract_s: seconds that stage 2 took, 0 where it was given.
        refine_s: seconds that stage 3 took.
    """

    extraction: Extraction | None = None
    nodes: tuple[Node, ...] | None = None
    dropped: tuple[Dropped, ...] = ()
    failure: Failure | None = None
    extract_s: float = 0.0
    refine_s: float = 0.0


# What is known of a problem at the end, and on the way: what is finished passes through.
Finished: TypeAlias = tuple[Group, Result] | Excluded
Item: TypeAlias = Task | Finished

# Of an engine; closing it ends what is under way.
Stream: TypeAlias = Generator[Finished, None, None]


# MERGED What a problem that fails does to a build.
#
# One that takes too long is left out: a hostile text must not hang a build, nor end it.  One that
# fails otherwise (a model without a usable reply, a defect) ends it, because the same may hold for
# others; but only after all the others have been tried, so that what they cost is not lost, and
# the next run finds them in the journal.

# So many failures are no longer about single problems.
MAX_FAILURES = 20


class FailurePolicy:
    """Counts failures, and ends a build over them.

    Args:
        on_error: ``skip`` leaves problems that fail out of the dataset.
    """

    def __init__(self, on_error: OnError) -> None:
        self._skip = on_error == "skip"
        self._failed = 0
        self._first = ""

    def look_at(self, group: Group, result: Result) -> None:
        """Count a result.

        Raises:
            ConsensusPRError: too many have failed.
        """
        failure = result.failure
        if self._skip or failure is None or failure.reason == "time_limit":
            return
        self._failed += 1
        self._first = self._first or f"problem {group.problem.problem_id[:80]!r}: {failure.detail}"
        if self._failed >= MAX_FAILURES:
            self.conclude()

    def conclude(self) -> None:
        """Raise ConsensusPRError where a problem failed that is not to be left out."""
        if not self._failed:
            return
        one = self._failed == 1
        raise ConsensusPRError(
            f"{self._first} ({self._failed:,} {'problem' if one else 'problems'} failed; the "
            "extracted ones are kept and the same command goes on with them, --on-error skip "
            f"leaves {'it' if one else 'them'} out)"
        )


# MERGED What a build tells while it runs; silent unless somebody listens.


class Progress:
    """Listens to a build; the base of what shows it."""

    def read(self, rollouts: int) -> None:
        """Hear how many rollouts are read."""

    def begin(self, problems: int | None) -> None:
        """Hear that reading is over, and how many problems there are where that is known."""

    def work(self, problems: int) -> None:
        """Hear how many problems are done."""

    def note(self, sentence: str) -> None:
        """Hear something that a person should know now."""


# MERGED What became of every rollout and every problem that was read, in numbers.


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


# MERGED Stage 3 as the pipeline calls it: settings that travel to worker processes, and a method.


class Refiner(Protocol):
    """Chooses the nodes among a problem's candidates; deterministic, and pickles."""

    @property
    def min_nodes(self) -> int:
        """The least number of nodes; a problem with fewer is excluded."""
        ...

    def provenance(self) -> Row:
        """Return the thresholds, as they are recorded in the dataset."""
        ...

    def refine(self, problem: Problem, extraction: Extraction, rollouts: int) -> Extraction:
        """Return the nodes in order, and what was dropped on the way.

        Args:
            problem: without nodes.
            extraction: of stage 2.
            rollouts: how many stage 2 looked at.
        """
        ...


# MERGED The paper's stage 3 in the shape that the pipeline calls.


@dataclass(frozen=True, slots=True)
class PaperRefiner:
    """Stage 3 of the paper (section 3.2), :mod:`consensusbench.extraction.refine`."""

    settings: RefineSettings = field(default_factory=RefineSettings)

    @property
    def min_nodes(self) -> int:
        return self.settings.min_nodes

    def provenance(self) -> Row:
        return self.settings.provenance()

    def refine(self, problem: Problem, extraction: Extraction, rollouts: int) -> Extraction:
        return refine(problem, extraction, rollouts, self.settings)
