"""Mathematics as it is written: one reader of expressions, and what follows from reading them.

``parse_statement`` reads a node expression into sides and relations, each side a tree;
``evaluate`` gives a tree's exact value; ``derive_forms`` writes a statement in other, equal
ways, when a dataset is built or loaded.  What a text is made of before it has a tree is told by
``tokenize``.
"""

from __future__ import annotations

from consensuspr.core.expressions.derive import (
    EXPANSION_VERSION,
    derive_forms,
    value_in_lowest_terms,
)
from consensuspr.core.expressions.evaluate import (
    Call,
    Expression,
    Number,
    Power,
    Product,
    Spelling,
    Sum,
    Symbol,
    evaluate,
    is_constant,
)
from consensuspr.core.expressions.parser import MAX_DIGITS, Token, TokenKind, tokenize
from consensuspr.core.expressions.statement import Statement, parse_statement

__all__ = [
    "EXPANSION_VERSION",
    "MAX_DIGITS",
    "Call",
    "Expression",
    "Number",
    "Power",
    "Product",
    "Spelling",
    "Statement",
    "Sum",
    "Symbol",
    "Token",
    "TokenKind",
    "derive_forms",
    "evaluate",
    "is_constant",
    "parse_statement",
    "tokenize",
    "value_in_lowest_terms",
]
