"""Stage 2 of construction: candidate nodes from the correct rollouts of a problem.

Two interchangeable extractors: ``rules`` computes, ``llm`` asks a model.
"""

from consensusbench.extraction.types import (
    AsyncExtractor,
    Candidate,
    CorrectRollout,
    Dropped,
    Extraction,
    Extractor,
    NodeType,
    Refiner,
)

__all__ = [
    "AsyncExtractor",
    "Candidate",
    "CorrectRollout",
    "Dropped",
    "Extraction",
    "Extractor",
    "NodeType",
    "Refiner",
]
