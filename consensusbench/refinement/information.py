"""How much an expression says: what makes a node distinctive, and what is trivial.

A rough count of what would have to be guessed to write it by chance, from the normal form:
digits, operations and letters.  ``252*2=504`` says much, ``x=3`` little.
"""

from __future__ import annotations

import re

from consensuspr.core import normalize
from consensuspr.core.expansion.forms import value_in_lowest_terms
from consensuspr.core.expansion.statement import parse_statement
from consensuspr.core.expansion.tree import Expression, Number, Power, Product, Sum

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_OPERATION = re.compile(r"[-+*/^√(!]")
_NAME = re.compile(r"[^\W\d_]+")


def information_of(expression: str) -> float:
    """Return the information of an expression, at least 0.

    One for each significant digit (one at least for each number), one half for each operation
    and each name.
    """
    normal = normalize(expression)
    digits = sum(
        max(1, len(number.replace(".", "").strip("0"))) for number in _NUMBER.findall(normal)
    )
    return digits + (len(_OPERATION.findall(normal)) + len(_NAME.findall(normal))) / 2


def is_identity(expression: str) -> bool:
    """Tell whether an equation only multiplies by 1, adds 0 or raises to the first power."""
    statement = parse_statement(expression)
    if statement is None or len(statement.sides) != 2:
        return False
    left, right = statement.sides
    reduced = _reduced(left), _reduced(right)
    changed = reduced != (left, right)
    return changed and (reduced[0] == reduced[1] or _same_number(*reduced))


def _reduced(tree: Expression) -> Expression:
    """Return a tree without the operations of its top that change nothing."""
    match tree:
        case Sum():
            terms = [(sign, term) for sign, term in tree.terms if not _is_number(term, 0)]
            return terms[0][1] if len(terms) == 1 and terms[0][0] > 0 else Sum(terms)
        case Product():
            factors = [(div, factor) for div, factor in tree.factors if not _is_number(factor, 1)]
            return factors[0][1] if len(factors) == 1 and not factors[0][0] else Product(factors)
        case Power() if _is_number(tree.exponent, 1):
            return tree.base
    return tree


def _is_number(tree: Expression, value: int) -> bool:
    return isinstance(tree, Number) and tree.value == value


def _same_number(left: Expression, right: Expression) -> bool:
    return isinstance(left, Number) and isinstance(right, Number) and left.value == right.value


def gives_number(expression: str) -> bool:
    """Tell whether one side of a statement is a number: what it says does not hang on names."""
    statement = parse_statement(expression)
    return statement is not None and any(
        value_in_lowest_terms(side) is not None for side in statement.sides
    )
