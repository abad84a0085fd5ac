"""The compiled engine; imported only through :mod:`consensuspr.core`."""

from consensuspr.core.native.algebra import read_expression_facts, states_equation
from consensuspr.core.native.counts import count_fields, count_phrases
from consensuspr.core.native.matcher import Matcher, match_batch
from consensuspr.core.native.normal_form import normalize
from consensuspr.core.native.statements import expression_keys

__all__ = [
    "Matcher",
    "count_fields",
    "count_phrases",
    "expression_keys",
    "match_batch",
    "normalize",
    "read_expression_facts",
    "states_equation",
]
