"""The ways of writing one expression tree as text, nearest to the original first."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import gcd
from operator import itemgetter
from typing import NamedTuple

from consensuspr.core.expansion.cost import MAX_COST, MAX_FORMS, Cost, Scope
from consensuspr.core.expansion.products import Factor, write_product
from consensuspr.core.expansion.rational import decimal, fraction
from consensuspr.core.expansion.sums import sum_templates
from consensuspr.core.expansion.tree import (
    Call,
    Expression,
    Number,
    Power,
    Product,
    Spelling,
    Sum,
    Symbol,
)

# What binds a text together, weakest first: it needs brackets inside something stronger.
_SUM, _PRODUCT, _POWER, _ATOM = range(4)

_INTEGER = Spelling.INTEGER  # looked up once: a member of an enumeration is slow to get

# Combinations of the forms of the parts that are looked at for one whole.
MAX_COMBINATIONS = 48


class Form(NamedTuple):
    """One way of writing: its distance from the original, its text, and what binds it."""

    cost: int
    text: str
    level: int


def write(tree: Expression, scope: Scope) -> list[Form]:
    """Return the ways of writing a tree, at most ``MAX_FORMS``, nearest first.

    Args:
        tree: the expression.
        scope: what holds for the statement that it is part of.

    Returns:
        At least one form; the first is the tree as it stands.
    """
    match tree:
        case Number():
            return _number(tree)
        case Symbol():
            return [Form(0, tree.text, _ATOM)]
        case Sum():
            return _sum(tree, scope)
        case Product():
            return _product(tree, scope) if _is_operation(tree) else _fraction(tree)
        case Power():
            return _power(tree, scope)
        case Call():
            return _call(tree, scope)


def combine(parts: Sequence[list[Form]]) -> list[tuple[int, list[Form]]]:
    """Return choices of one form per part, cheapest first, within the limits."""
    choices: list[tuple[int, list[Form]]] = [(0, [])]
    for forms in parts:
        if len(forms) == 1 and not forms[0].cost:
            for _, chosen in choices:
                chosen.append(forms[0])
            continue
        choices = [
            (cost + form.cost, [*chosen, form])
            for cost, chosen in choices
            for form in forms
            if cost + form.cost <= MAX_COST
        ]
        choices.sort(key=_cost)
        del choices[MAX_COMBINATIONS:]
    return choices


_cost = itemgetter(0)


def _nearest(forms: list[Form]) -> list[Form]:
    first: dict[str, Form] = {}
    for form in sorted([form for form in forms if form.cost <= MAX_COST], key=_cost):
        first.setdefault(form.text, form)
    return list(first.values())[:MAX_FORMS]


def _wrapped(form: Form, level: int) -> str:
    return form.text if form.level >= level else f"({form.text})"


def _number(number: Number) -> list[Form]:
    """Spell a number that stands alone, in a sum or as a side."""
    forms = [Form(0, number.text, _ATOM)]
    if number.spelling is _INTEGER:
        return forms
    written = decimal(number.value)
    if written is not None and number.spelling is not Spelling.DECIMAL:
        forms.append(Form(Cost.NUMBER, written, _ATOM))
    parts = fraction(number.value)
    if parts is not None:
        forms.append(Form(Cost.NUMBER, f"{parts[0]}/{parts[1]}", _PRODUCT))
    return forms


def _sum(tree: Sum, scope: Scope) -> list[Form]:
    templates = sum_templates("".join("+" if sign > 0 else "-" for sign, _ in tree.terms))
    forms = []
    for cost, chosen in combine([write(term, scope) for _, term in tree.terms]):
        plain = [_wrapped(form, _PRODUCT) for form in chosen]
        for extra, template in templates:
            forms.append(Form(cost + extra, template.format(*plain), _SUM))
        if scope.arithmetic and len(chosen) > 1 and any(form.level == _PRODUCT for form in chosen):
            bracketed = [_wrapped(form, _POWER) for form in chosen]
            for extra, template in templates:
                total = cost + extra + Cost.BRACKET
                forms.append(Form(total, template.format(*bracketed), _SUM))
    return _nearest(forms)


def write_quotient(tree: Product, scope: Scope) -> list[Form]:
    """Return the ways of writing ``7/2`` as an operation rather than as a value."""
    return _product(tree, scope)


def _is_operation(tree: Product) -> bool:
    return value_in_lowest_terms(tree) is None


def _fraction(tree: Product) -> list[Form]:
    """Spell a fraction in lowest terms, which is a value like any other number."""
    value = value_in_lowest_terms(tree) or Fraction(0)
    forms = [Form(0, f"{value.numerator}/{value.denominator}", _PRODUCT)]
    written = decimal(value)
    if written is not None:
        forms.append(Form(Cost.NUMBER, written, _ATOM))
    return forms


def _product(tree: Product, scope: Scope) -> list[Form]:
    parts = [
        [Form(0, factor.text, _ATOM)] if isinstance(factor, Number) else write(factor, scope)
        for _, factor in tree.factors
    ]
    forms: list[Form] = []
    for cost, chosen in combine(parts):
        factors = [
            Factor(divides, _wrapped(form, _POWER), _literal(factor))
            for (divides, factor), form in zip(tree.factors, chosen, strict=True)
        ]
        forms.extend(
            Form(cost + extra, text, _PRODUCT) for extra, text in write_product(factors, scope)
        )
    return _nearest(forms)


def _literal(factor: Expression) -> Fraction | None:
    return factor.value if isinstance(factor, Number) else None


def value_in_lowest_terms(tree: Expression) -> Fraction | None:
    """Return the value of a number or of a fraction ``p/q`` in lowest terms, else None."""
    if isinstance(tree, Number):
        return tree.value
    if not isinstance(tree, Product) or len(tree.factors) != 2:
        return None
    (inverted, above), (divides, below) = tree.factors
    if inverted or not divides or not isinstance(above, Number) or not isinstance(below, Number):
        return None
    p, q = above.value, below.value
    if p.denominator != 1 or q.denominator != 1 or gcd(p.numerator, q.numerator) != 1:
        return None
    return Fraction(p.numerator, q.numerator)


def _power(tree: Power, scope: Scope) -> list[Form]:
    forms = []
    parts = [write(tree.base, scope), write(tree.exponent, scope)]
    for cost, (base, exponent) in combine(parts):
        raised = exponent.text if exponent.text.isalnum() else f"{{{exponent.text}}}"
        forms.append(Form(cost, f"{_wrapped(base, _ATOM)}^{raised}", _POWER))
    return _nearest(forms)


def _call(tree: Call, scope: Scope) -> list[Form]:
    forms = []
    for cost, chosen in combine([write(argument, scope) for argument in tree.arguments]):
        text = tree.pieces[0]
        for form, piece in zip(chosen, tree.pieces[1:], strict=True):
            text += form.text + piece
        forms.append(Form(cost, text, _ATOM))
    return _nearest(forms)
