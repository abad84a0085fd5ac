"""The paper's stage 3 in the shape that the pipeline calls."""

from __future__ import annotations

from dataclasses import dataclass, field

from consensusbench.extraction.types import Extraction
from consensusbench.refinement import RefineSettings, refine
from consensuspr.data import Problem, Row


@dataclass(frozen=True, slots=True)
class PaperRefiner:
    """Stage 3 of the paper (section 3.2), :mod:`consensusbench.refinement`."""

    settings: RefineSettings = field(default_factory=RefineSettings)

    @property
    def min_nodes(self) -> int:
        return self.settings.min_nodes

    def provenance(self) -> Row:
        return self.settings.provenance()

    def refine(self, problem: Problem, extraction: Extraction, rollouts: int) -> Extraction:
        return refine(problem, extraction, rollouts, self.settings)
