"""Carry out one operation of an arithmetic expression, as a solution does on its way.

``5*100+700=1200`` is reached by many as ``500+700=1200``.  The step is exact, so the
equation keeps its truth; it is still an equation with an operation and its result, never
a bare value.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from consensuspr.core.expansion.evaluate import evaluate
from consensuspr.core.expansion.rational import decimal
from consensuspr.core.expansion.tree import Expression, Number, Product, Spelling, Sum


def steps(tree: Expression) -> Iterator[Expression]:
    """Yield the trees that one step leads to: fewer operations, at least one.

    A step carries out everything that is nested; or, of a flat sum, its beginning up to
    some term or the sum of all that is taken away; or, of a flat product, one pair of
    factors.  Its results must be positive and have a short decimal.
    """
    if isinstance(tree, Sum):
        yield from _sum_steps(tree)
    elif isinstance(tree, Product):
        yield from _product_steps(tree)


def _sum_steps(tree: Sum) -> Iterator[Expression]:
    if any(not isinstance(term, Number) for _, term in tree.terms):
        terms = [(sign, number) for sign, term in tree.terms if (number := _result(term))]
        if len(terms) == len(tree.terms) > 1:
            yield Sum(list(terms))
        return
    for length in range(2, len(tree.terms)):
        beginning = _result(Sum(tree.terms[:length]))
        if beginning is not None:
            yield Sum([(1, beginning), *tree.terms[length:]])
    taken = [term for sign, term in tree.terms if sign < 0]
    if 1 < len(taken) < len(tree.terms):
        total = _result(Sum([(1, term) for term in taken]))
        if total is not None:
            yield Sum([*((sign, term) for sign, term in tree.terms if sign > 0), (-1, total)])


def _product_steps(tree: Product) -> Iterator[Expression]:
    factors = tree.factors
    if any(not isinstance(factor, Number) for _, factor in factors):
        results = [(divides, number) for divides, factor in factors if (number := _result(factor))]
        if len(results) == len(factors):
            yield Product(list(results))
        return
    for i in range(len(factors)):
        for j in range(i + 1, len(factors)):
            rest = [factor for index, factor in enumerate(factors) if index not in (i, j)]
            pair, divides = _pair(factors[i], factors[j])
            number = _result(pair)
            if number is None or not rest or (divides and all(below for below, _ in rest)):
                continue
            place = sum(1 for index in range(i) if index != j)
            yield Product([*rest[:place], (divides, number), *rest[place:]])


def _pair(first: tuple[bool, Expression], second: tuple[bool, Expression]) -> tuple[Product, bool]:
    """Return the product of two factors and whether it divides as a whole."""
    if first[0] and second[0]:
        return Product([(False, first[1]), (False, second[1])]), True
    if first[0]:
        first, second = second, first
    return Product([first, second]), False


def _result(tree: Expression) -> Number | None:
    """Return the value as a literal, None unless it is positive and short."""
    if isinstance(tree, Number):
        return tree
    value = evaluate(tree)
    if value is None or value <= 0:
        return None
    return _literal(value)


def _literal(value: Fraction) -> Number | None:
    if value.denominator == 1:
        return Number(value, str(value), Spelling.INTEGER)
    written = decimal(value)
    return None if written is None else Number(value, written, Spelling.DECIMAL)
