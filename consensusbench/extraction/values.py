"""The values that a wording gives: what its sides come to, or the numbers in its words.

Two wordings that a model calls the same conclusion should give the same value where they
give any.
"""

from __future__ import annotations

from fractions import Fraction

from consensuspr.core.expansion.evaluate import evaluate
from consensuspr.core.expansion.lexer import Kind, tokenize
from consensuspr.core.expansion.parser import MAX_DIGITS
from consensuspr.core.expansion.statement import parse_statement


def stated_values(text: str) -> frozenset[Fraction]:
    """Return the exact values of the sides of a statement, or the numbers in other text.

    Empty where there are none, as in ``n is even`` or ``a+b=c``.
    """
    statement = parse_statement(text)
    if statement is not None:
        values = [evaluate(side) for side in statement.sides]
        return frozenset(value for value in values if value is not None)
    numbers = [token.text for token in tokenize(text) if token.kind is Kind.NUMBER]
    return frozenset(Fraction(number) for number in numbers if len(number) <= MAX_DIGITS)
