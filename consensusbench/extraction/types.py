"""Candidate nodes of correct rollouts (paper, section 3.2), and the stages that make them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from consensusbench.extraction.corpus import Corpus
from consensuspr.data import Problem, Row

NodeType: TypeAlias = Literal["equation", "value", "proposition", "expression"]


@dataclass(frozen=True, slots=True)
class CorrectRollout:
    """A rollout whose final answer was verified; its id is unique among those of its problem."""

    rollout_id: str
    model: str
    response: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A conclusion that may become a consensus node.

    Attributes:
        label: what a person reads: the most common original wording, or a model's words.
        type: kind of conclusion.
        expressions: the wordings seen, as written, most common first; at least one.
        derived: forms that are equal to an expression and were not seen.
        support: rollouts that reached it, counted over those that were looked at.
        num_models: distinct models among them.
        position: median place of its first mention in a rollout, from 0 (start) to 1 (end).
        is_final: it states the final answer.
        rare: expressions that no other problem states, whatever the names in them are.
        chains: rollout and number of the chain of sides in which it stands; empty if not known.
    """

    label: str
    type: NodeType
    expressions: tuple[str, ...]
    derived: tuple[str, ...]
    support: int
    num_models: int
    position: float
    is_final: bool = False
    chains: tuple[tuple[int, int], ...] = ()
    rare: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dropped:
    """A conclusion that is no node, and why.

    Attributes:
        stage: the stage that dropped it.
        reason: one of a small fixed set of words per stage, for counting.
        detail: one clause for a person, naming value and limit.
        label: the conclusion as written.
        expressions: its wordings.
        support: rollouts that reached it, None where that was not found out.
    """

    stage: Literal["extract", "refine"]
    reason: str
    detail: str
    label: str
    expressions: tuple[str, ...] = ()
    support: int | None = None


@dataclass(frozen=True, slots=True)
class Extraction:
    """What one stage made of one problem: candidates in order of position, and the rest."""

    candidates: tuple[Candidate, ...]
    dropped: tuple[Dropped, ...] = ()


class Extractor(Protocol):
    """Stage 2 for one problem, by computation alone.

    Deterministic, and pickled to worker processes, so that it holds settings and nothing else.
    """

    @property
    def name(self) -> str:
        """Name in provenance and tables."""
        ...

    def provenance(self) -> Row:
        """Return name, version and thresholds, as they are recorded in the dataset."""
        ...

    def extract(self, problem: Problem, rollouts: Sequence[CorrectRollout]) -> Extraction:
        """Return the candidates of one problem from its correct rollouts."""
        ...


@runtime_checkable
class AsyncExtractor(Protocol):
    """Stage 2 for one problem by asking a model; belongs to one event loop."""

    @property
    def name(self) -> str:
        """Name in provenance and tables."""
        ...

    @property
    def in_flight(self) -> int:
        """Problems that are extracted at once."""
        ...

    def provenance(self) -> Row:
        """Return name, model, prompts' digest, version and thresholds."""
        ...

    async def extract(self, problem: Problem, rollouts: Sequence[CorrectRollout]) -> Extraction:
        """Return the candidates of one problem; a ConsensusPRError leaves it for a later run."""
        ...

    def usage(self) -> Row:
        """Return what the model was asked so far, for the summary of a build."""
        ...

    async def close(self) -> None:
        """Let go of the model."""
        ...


class Refiner(Protocol):
    """Stage 3: chooses the nodes among a problem's candidates; deterministic, and pickles."""

    @property
    def min_nodes(self) -> int:
        """The least number of nodes; a problem with fewer is excluded."""
        ...

    def provenance(self) -> Row:
        """Return the thresholds, as they are recorded in the dataset."""
        ...

    def refine(
        self, problem: Problem, extraction: Extraction, rollouts: int, corpus: Corpus
    ) -> Extraction:
        """Return the nodes in order, and what was dropped; stage 2 compared so many rollouts."""
        ...
