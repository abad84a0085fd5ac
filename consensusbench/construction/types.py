"""The values of a build: a problem on its way, how its nodes were made, why it is left out."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from consensusbench.construction.budgets import Stated
from consensusbench.extraction.types import CorrectRollout, Dropped, Extraction
from consensuspr.data import Node, Problem, Row

# Seconds for one problem; ordinary ones take hundredths of one.
DEFAULT_TIME_LIMIT_S = 60.0

Split: TypeAlias = Literal["train", "test"]
Stage: TypeAlias = Literal["select", "extract", "refine"]
# Why a problem is not in the dataset; docs/guides/prepare-data.md explains each.
ExclusionReason: TypeAlias = Literal[
    "no_rollouts",
    "no_ground_truth",
    "conflicting_rows",
    "few_correct",
    "few_nodes",
    "time_limit",
    "failed",
]
# Each as the end of "12 problems …".
REASON_WORDS: Final[dict[ExclusionReason, str]] = {
    "no_rollouts": "without a rollout",
    "no_ground_truth": "without a ground truth",
    "conflicting_rows": "whose rollouts differ in text or ground truth",
    "few_correct": "with too few correct rollouts",
    "few_nodes": "with too few nodes",
    "time_limit": "that took too long",
    "failed": "that failed",
}


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
class Excluded:
    """Why a problem is left out of the dataset; ``detail`` is one clause for a person."""

    stage: Stage
    reason: ExclusionReason
    detail: str


@dataclass(frozen=True, slots=True)
class BuildItem:
    """A problem on its way through a build.

    Attributes:
        record: None if the problem is excluded before stage 2.
        rollouts: the compared ones, until stage 2 is done.
        extraction: of stage 2.
        nodes: of stage 3.
        dropped: conclusions that stage 3 left out.
        excluded: no further stage works on it.
    """

    problem: Problem
    record: BuildRecord | None = None
    rollouts: tuple[CorrectRollout, ...] = ()
    extraction: Extraction | None = None
    nodes: tuple[Node, ...] | None = None
    dropped: tuple[Dropped, ...] = ()
    excluded: Excluded | None = None


# Of an engine, in the order of its items; closing it ends the work.
Stream: TypeAlias = Generator[BuildItem, None, None]
