"""Stage 3 of construction: of the candidates, the nodes that are worth supervising."""

from consensusbench.refinement.refine import refine
from consensusbench.refinement.settings import REFINEMENT_VERSION, RefineSettings

__all__ = ["REFINEMENT_VERSION", "RefineSettings", "refine"]
