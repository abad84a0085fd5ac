"""Stage 3 as the pipeline calls it: settings that travel to worker processes, and a method."""

from __future__ import annotations

from typing import Protocol

from consensusbench.extraction.types import Extraction
from consensuspr.data import Problem, Row


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
