"""The ways of writing one product: order, brackets, and the spelling of a rational factor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import permutations

from consensuspr.core.expansion.cost import MAX_PERMUTED, Cost, Scope
from consensuspr.core.expansion.rational import decimal, fraction, percentage

# What a factor is to a template.
LITERAL, ONE, SYMBOLIC, BRACKETED, DIVISOR = "n", "1", "s", "b", "d"


@dataclass(slots=True)
class Factor:
    """A factor as text, in brackets where it needs them; ``value`` only for a literal."""

    divides: bool
    text: str
    value: Fraction | None

    @property
    def role(self) -> str:
        """The factor's role in a template."""
        if self.divides:
            return DIVISOR
        if self.value is None:
            return BRACKETED if self.text.endswith(")") else SYMBOLIC
        return ONE if self.text == "1" else LITERAL


def write_product(factors: list[Factor], scope: Scope) -> list[tuple[int, str]]:
    """Return ``(cost, text)`` of every way to write the product, duplicates included.

    Args:
        factors: in the order as written; the first form keeps it.
        scope: what holds for the statement that the product is part of.
    """
    forms = _arrange(0, factors)
    if len(factors) <= MAX_PERMUTED:
        for cost, respelled in _respell(factors, scope):
            forms.extend(_arrange(cost, respelled))
    return forms


def _arrange(base: int, factors: list[Factor]) -> list[tuple[int, str]]:
    texts = [factor.text for factor in factors]
    templates = product_templates("".join(factor.role for factor in factors))
    return [(base + cost, template.format(*texts)) for cost, template in templates]


@lru_cache(maxsize=4096)
def product_templates(roles: str) -> tuple[tuple[int, str], ...]:
    """Return ``(cost, template)`` pairs for factors of these roles; field i takes factor i."""
    identity = tuple(range(len(roles)))
    found: dict[str, int] = {_in_order(roles, identity): 0}
    if len(roles) <= MAX_PERMUTED:
        for order in permutations(identity):
            if _is_writable(roles, order):
                found.setdefault(_in_order(roles, order), Cost.ORDER)
        for template in _bracketed(roles):
            found.setdefault(template, Cost.BRACKET)
    return tuple((cost, text) for text, cost in found.items())


def _in_order(roles: str, order: tuple[int, ...]) -> str:
    text = "".join(f"{'/' if roles[i] == DIVISOR else '*'}{{{i}}}" for i in order)
    return text[1:] if text[0] == "*" else "1" + text


def _is_writable(roles: str, order: tuple[int, ...]) -> bool:
    """Tell whether an order of factors is one that people write.

    No divisor first, no number behind a symbol (``x3``), and a 1 that is divided only
    right before what divides it: ``a*1/b``, not ``1*a/b``.
    """
    if roles[order[0]] == DIVISOR:
        return False
    ordered = "".join(roles[index] for index in order)
    if SYMBOLIC + LITERAL in ordered or SYMBOLIC + ONE in ordered.replace(ONE + DIVISOR, ""):
        return False
    return DIVISOR not in ordered or ordered.count(ONE) == ordered.count(ONE + DIVISOR)


def _bracketed(roles: str) -> Iterator[str]:
    """Yield ``(a/d)*b``, ``b*(a/d)``, ``(a*b)/d`` and ``a/(d*e)``."""
    above = [index for index, role in enumerate(roles) if role != DIVISOR]
    below = [index for index, role in enumerate(roles) if role == DIVISOR]
    if not below or len(above) < 2:
        if len(below) > 1:
            yield from _divided_at_once(roles, above, below)
        return
    ones = [index for index in above if roles[index] == ONE]
    for divisor in below:
        for numerator in ones or above:
            quotient = f"({{{numerator}}}/{{{divisor}}})"
            rest = tuple(i for i in range(len(roles)) if i not in (numerator, divisor))
            written = _in_order(roles, tuple(sorted(rest, key=lambda i: roles[i] == DIVISOR)))
            yield f"{written}*{quotient}"
            yield f"{quotient}*{written}"
    if ones:
        return
    for order in permutations(above):
        yield f"({_in_order(roles, order)})" + "".join(f"/{{{i}}}" for i in below)
    if len(below) > 1:
        yield from _divided_at_once(roles, above, below)


def _divided_at_once(roles: str, above: list[int], below: list[int]) -> Iterator[str]:
    numerator = _in_order(roles, tuple(above)) if above else "1"
    for order in permutations(below):
        yield f"{numerator}/({'*'.join(f'{{{i}}}' for i in order)})"


def _respell(factors: list[Factor], scope: Scope) -> Iterator[tuple[int, list[Factor]]]:
    """Yield the product with one rational factor spelled in another way."""
    for taken, value in _rational_parts(factors, scope.quotients):
        rest = [factor for index, factor in enumerate(factors) if index not in taken]
        before = [factor.text for index, factor in enumerate(factors) if index in taken]
        above = scope.quotients and any(not factor.divides for factor in rest)
        if not rest:
            continue
        place = sum(1 for index in range(min(taken)) if index not in taken)
        hundredths = len(taken) == 1 and not factors[taken[0]].divides
        for cost, spelling in _spellings(value, scope.arithmetic, above, hundredths):
            if [factor.text for factor in spelling] != before:
                yield cost, [*rest[:place], *spelling, *rest[place:]]


def _rational_parts(
    factors: list[Factor], quotients: bool
) -> Iterator[tuple[tuple[int, ...], Fraction]]:
    """Yield the indices and the value of each literal that is no integer: 0.5, 1/2, or /2."""
    literals = [(i, factor) for i, factor in enumerate(factors) if factor.value is not None]
    whole = [i for i, factor in literals if not factor.divides and _is_integer(factor)]
    ones = [i for i in whole if factors[i].text == "1"]
    for i, factor in literals:
        value = factor.value or Fraction(1)
        if not _is_integer(factor):
            if not factor.divides:
                yield (i,), value
        elif factor.divides:
            if quotients and len(whole) < 2 and not ones:
                yield (i,), 1 / value
            for j in ones or whole:
                quotient = (factors[j].value or Fraction(1)) / value
                if quotient.denominator > 1:
                    yield (j, i), quotient


def _is_integer(factor: Factor) -> bool:
    return factor.value is not None and factor.value.denominator == 1


def _spellings(
    value: Fraction, arithmetic: bool, above: bool, hundredths: bool
) -> Iterator[tuple[int, list[Factor]]]:
    """Yield the factors that together have the value.

    Args:
        value: not an integer.
        arithmetic: whether it may be a percentage.
        above: whether 1/2 may be ``/2``, because another factor stands above the line.
        hundredths: whether it may be so many hundredths; few write 50/100 for 1/2.
    """
    written = decimal(value)
    if written is not None:
        yield Cost.NUMBER, [Factor(False, written, value)]
    parts = fraction(value)
    if parts is not None:
        yield Cost.NUMBER, [_integer(False, parts[0]), _integer(True, parts[1])]
        if parts[0] == "1" and above:
            yield Cost.NUMBER, [_integer(True, parts[1])]
    count = percentage(value) if hundredths else None
    if count is not None:
        if arithmetic:
            yield Cost.HUNDREDTHS, [Factor(False, count + "%", value)]
        if "." not in count:
            yield Cost.HUNDREDTHS, [_integer(False, count), _integer(True, "100")]


def _integer(divides: bool, text: str) -> Factor:
    return Factor(divides, text, Fraction(int(text)))
