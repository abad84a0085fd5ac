"""Stage 2 by a language model: it suggests nodes, the rollouts decide.

See ``docs/extraction-llm.md``.
"""

from consensusbench.extraction.llm.extractor import LlmExtractor
from consensusbench.extraction.llm.settings import LlmSettings

__all__ = ["LlmExtractor", "LlmSettings"]
