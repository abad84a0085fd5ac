"""Stage 2 by rules: equations and distinctive values that correct rollouts share."""

from consensusbench.extraction.rules.extractor import RulesExtractor
from consensusbench.extraction.rules.settings import RULES_VERSION, RulesSettings

__all__ = ["RULES_VERSION", "RulesExtractor", "RulesSettings"]
