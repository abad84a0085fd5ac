"""What travels through the pipeline: a problem with its rollouts, and what became of it.

Everything here is small and pickles: it goes to worker processes and back.  The texts of
rollouts travel in :class:`Task` only, and only there.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from consensusbench.extraction.types import CorrectRollout, Dropped, Extraction
from consensuspr.data import Node, Problem, Row

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
