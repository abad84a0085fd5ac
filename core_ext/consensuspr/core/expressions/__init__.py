"""Mathematics as it is written: one reader of expressions, and what follows from reading them.

``parse_statement`` reads a node expression into sides and relations, each side a tree;
``evaluate`` gives a tree's exact value; ``derive_forms`` writes a statement in other, equal
ways, when a dataset is built or loaded.  ``tokenize`` gives the tokens of a text before it has a
tree.  Final answers are formulas in one spelling: ``closed_value`` and ``exact_quotient``
read those, with square roots, pi and letters, and the functions beside them compare what was read.
"""

from __future__ import annotations

from consensuspr.core.expressions.derive import (
    EXPANSION_VERSION,
    derive_forms,
    novel_forms,
    value_in_lowest_terms,
)
from consensuspr.core.expressions.evaluate import (
    BeyondLimits,
    Call,
    Expression,
    Number,
    Power,
    Product,
    Spelling,
    Sum,
    Symbol,
    Unreadable,
    evaluate,
    is_constant,
)
from consensuspr.core.expressions.formulas import (
    Closed,
    Quotient,
    Value,
    closed_value,
    compare_equations,
    compare_quotients,
    exact_quotient,
    linear_bound,
)
from consensuspr.core.expressions.parser import (
    MAX_DIGITS,
    Token,
    TokenKind,
    parse_formula,
    tokenize,
)
from consensuspr.core.expressions.sides import Statement, parse_statement

__all__ = [
    "EXPANSION_VERSION",
    "MAX_DIGITS",
    "BeyondLimits",
    "Call",
    "Closed",
    "Expression",
    "Number",
    "Power",
    "Product",
    "Quotient",
    "Spelling",
    "Statement",
    "Sum",
    "Symbol",
    "Token",
    "TokenKind",
    "Unreadable",
    "Value",
    "closed_value",
    "compare_equations",
    "compare_quotients",
    "derive_forms",
    "evaluate",
    "exact_quotient",
    "is_constant",
    "linear_bound",
    "novel_forms",
    "parse_formula",
    "parse_statement",
    "tokenize",
    "value_in_lowest_terms",
]
