"""What can be proved about statements: their structure, and whether they are true.

**Structure**: the tree without the order of terms, factors and sides.  An equal value does not
prove that two say the same: ``2+2=4`` and ``8/2=4`` are different conclusions.

**True**: a statement is false only if no reading makes it true, because solutions write
``10/3=3.33``, ``30/120*100=25%`` and ``2 dozen = 24``.

**The final answer** is recognized by value, with the comparison that scores answers.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Container, Iterator, Sequence
from enum import StrEnum
from fractions import Fraction
from itertools import pairwise, zip_longest

from consensuspr.core import derive_forms, normalize
from consensuspr.core.expressions import (
    Call,
    Expression,
    Number,
    Power,
    Product,
    Spelling,
    Statement,
    Sum,
    Symbol,
    TokenKind,
    evaluate,
    novel_forms,
    parse_statement,
    tokenize,
    value_in_lowest_terms,
)
from consensuspr.scoring.answers.compare import Form, compare, form_of
from consensuspr.scoring.answers.extract import (
    MAX_ANSWER_CHARS,
    answer_in_prose,
    reference_answer,
)

_PUNCTUATION = " .,;:?"
_MIRRORED = {"<": ">", "<=": ">="}


def normal_form(text: str) -> str:
    """Return the normal form as a matcher searches for it."""
    return normalize(text).strip(_PUNCTUATION)


_OPENING = {")": "(", "]": "[", "}": "{"}


def lonely_brackets(text: str) -> set[int]:
    """Return the places of brackets without a partner."""
    opened: list[int] = []
    lonely: set[int] = set()
    for place, character in enumerate(text):
        if character in "([{":
            opened.append(place)
        elif character in ")]}":
            if opened and text[opened[-1]] == _OPENING[character]:
                opened.pop()
            else:
                lonely.add(place)
    return lonely.union(opened)


def cut_outside_brackets(
    text: str, signs: str, everywhere: Container[int] = ()
) -> Iterator[tuple[str, str]]:
    """Yield what stands between signs outside brackets, with the sign behind it.

    Args:
        text: of any kind; linear in its length.
        signs: characters, no brackets.
        everywhere: places that are cut within brackets too.
    """
    depth = start = 0
    for place, character in enumerate(text):
        if place in everywhere or (not depth and character in signs):
            yield text[start:place], character
            start = place + 1
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
    yield text[start:], ""


def forms_beyond(expressions: Sequence[str], limit: int | None = None) -> tuple[str, ...]:
    """Return the derived forms of a node that add something to its expressions.

    Args:
        expressions: the wordings as written.
        limit: on the number of forms; the nearest forms of every expression come before the
            farther ones of any.
    """
    derived = zip_longest(*map(derive_forms, expressions))
    forms = (form for rank in derived for form in rank if form is not None)
    return tuple(novel_forms(expressions, forms))[:limit]


def statement_structure(statement: Statement | None) -> str | None:
    """Return a text that is equal for statements which differ in nothing but order.

    The order is that of the terms of a sum, the factors of a product, and the sides.  None for
    prose, and for a number or symbol without a relation.
    """
    if statement is None:
        return None
    sides = [_unordered(side) for side in statement.sides]
    relations = statement.relations
    if not relations:
        plain = isinstance(statement.sides[0], (Number, Symbol))
        return None if plain else sides[0]
    if len(set(relations)) == 1 and relations[0] in "=≠≡≈":
        sides.sort()
    elif set(relations) <= _MIRRORED.keys():
        sides, relations = sides[::-1], [_MIRRORED[relation] for relation in reversed(relations)]
    return "\x00".join([statement.tail, *relations, *sides])


def _unordered(tree: Expression) -> str:
    """Write a tree so that the order of terms and factors makes no difference."""
    match tree:
        case Number():
            return str(tree.value)
        case Symbol():
            return f"[{tree.text}]"
        case Sum():
            terms = [f"{sign:+d}{_unordered(term)}" for sign, term in tree.terms]
            return f"(+ {' '.join(sorted(terms))})"
        case Product():
            factors = [_factor(divides, factor) for divides, factor in tree.factors]
            return f"(* {' '.join(sorted(factor for factor in factors if factor != '1'))})"
        case Power():
            return f"({_unordered(tree.base)})^({_unordered(tree.exponent)})"
        case Call():
            return "\x01".join([*tree.pieces, *map(_unordered, tree.arguments)])


def _factor(divides: bool, tree: Expression) -> str:
    """Write one factor; to divide by 2 is to multiply by 1/2."""
    if divides and isinstance(tree, Number) and tree.value:
        return str(1 / tree.value)
    return ("/" if divides else "") + _unordered(tree)


def assigned_numbers(text: str) -> tuple[str, frozenset[Fraction]] | None:
    """Return the name that a text gives a number, a bound or a point, and its numbers; else None.

    ``x = 5``, ``n ≤ 2024`` and ``D = (0, 7)`` name something and compute nothing.
    """
    parts = _RELATION.split(normal_form(text))
    if len(parts) != 2:
        return None
    left, right = parts
    if not _NAME.fullmatch(left):
        left, right = right, left
    if not _NAME.fullmatch(left) or not _LITERAL.fullmatch(right):
        return None
    numbers = frozenset(Fraction(number) for number in _PART.findall(right))
    return left, numbers


_RELATION = re.compile("[=<>≤≥]+")
_NAME = re.compile(r"[^\W\d]\w*'*")
_LITERAL = re.compile(r"[-\d./]+|\([-\d./,]+\)")
_PART = re.compile(r"\d{1,18}(?:\.\d{1,9})?")


# Truth.

# Beyond this relative difference, what is said to be about equal is not.
APPROXIMATE_SHARE = Fraction(1, 10)

# Punctuation and delimiters that a quoted formula may bring along: ``$2+2=5,$``.
_AROUND = " \t\r\n.,;:?$"


_HOLDS: dict[str, Callable[[Fraction, Fraction], bool]] = {
    "=": operator.eq,
    "≠": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


class Truth(StrEnum):
    """What exact arithmetic says of a statement."""

    TRUE = "true"
    ROUNDED = "rounded"
    """True up to the digits that a decimal was written with."""

    FALSE = "false"
    UNCHECKED = "unchecked"
    """No statement, or one with parts that have no exact value here."""


def truth_of(expression: str) -> Truth:
    """Tell whether any string, plain text or LaTeX, is a true arithmetic statement."""
    expression = expression.strip(_AROUND)
    statement = parse_statement(expression)
    if statement is None or not statement.relations:
        return Truth.UNCHECKED
    truth = _truth(statement)
    if truth is not Truth.FALSE:
        return truth
    if statement.dropped_units:
        return Truth.UNCHECKED  # a word that was taken for a unit may be a dozen
    readings = []
    if "!=" in expression:
        readings.append(expression.replace("!=", "! ="))  # 2!=2: two factorial is two
    if any(token.kind is TokenKind.PERCENT for token in tokenize(expression)):
        # 30/120*100=25%: the sign is a unit there, not a division by 100.
        readings.append(expression.replace("\\%", "").replace("%", ""))
    for other in readings:
        statement = parse_statement(other)
        if statement is not None and statement.relations:
            truth = _truth(statement)
            if truth is not Truth.FALSE:
                return truth
    return Truth.FALSE


def _truth(statement: Statement) -> Truth:
    values = [evaluate(side) for side in statement.sides]
    if statement.tail:
        return _congruence(statement, values)
    if set(statement.relations) == {"="}:
        return _equality(statement.sides, values)
    relations = statement.relations
    if "≈" in relations:  # what follows from a rounded value is about equal too
        relations = ["≈" if relation == "=" else relation for relation in relations]
    links = [
        _link(relation, left, right)
        for relation, (left, right) in zip(relations, pairwise(values), strict=True)
    ]
    for outcome in (Truth.FALSE, Truth.UNCHECKED, Truth.ROUNDED):
        if outcome in links:
            return outcome
    return Truth.TRUE


def _equality(sides: Sequence[Expression], values: Sequence[Fraction | None]) -> Truth:
    """Compare all sides that have a value: x=5=7 is false whatever x is."""
    known = [(side, value) for side, value in zip(sides, values, strict=True) if value is not None]
    rounded = False
    for (left, a), (right, b) in pairwise(known):
        if a == b:
            continue
        if not _is_rounding(left, a, b) and not _is_rounding(right, b, a):
            return Truth.FALSE
        rounded = True
    if len(known) < len(sides):
        return Truth.UNCHECKED
    return Truth.ROUNDED if rounded else Truth.TRUE


def _is_rounding(side: Expression, written: Fraction, value: Fraction) -> bool:
    """Tell whether a side is a decimal to which the value was rounded or cut."""
    if not isinstance(side, Number) or side.spelling is not Spelling.DECIMAL:
        return False
    places = len(side.text.partition(".")[2])
    return abs(written - value) < Fraction(1, 10**places)


def _link(relation: str, left: Fraction | None, right: Fraction | None) -> Truth:
    if left is None or right is None:
        return Truth.UNCHECKED
    if relation == "≈":
        near = abs(left - right) <= APPROXIMATE_SHARE * max(abs(left), abs(right))
        return Truth.ROUNDED if near else Truth.FALSE
    holds = _HOLDS.get(relation)
    if holds is None:
        return Truth.UNCHECKED
    return Truth.TRUE if holds(left, right) else Truth.FALSE


def _congruence(statement: Statement, values: Sequence[Fraction | None]) -> Truth:
    digits = "".join(filter(str.isdecimal, statement.tail))
    modulus = int(digits) if 0 < len(digits) <= 18 else 0
    if not modulus or not set(statement.relations) <= {"=", "≡"}:
        return Truth.UNCHECKED
    whole = [value for value in values if value is not None and value.denominator == 1]
    if len(whole) < len(values):
        return Truth.UNCHECKED
    same = all((left - right) % modulus == 0 for left, right in pairwise(whole))
    return Truth.TRUE if same else Truth.FALSE


# The final answer.

_EQUALITIES = ("=", "≈", "≡")


def states_answer(expression: str, ground_truth: str | None) -> bool:
    """Tell whether an expression says what the ground truth says.

    An equation does so if the answer is one of its sides, other text if the answer is its
    last number or formula.  Text is read up to ``MAX_ANSWER_CHARS``.
    """
    if ground_truth is None:
        return False
    gold = form_of(reference_answer(ground_truth)[:MAX_ANSWER_CHARS])
    text = expression.strip()[:MAX_ANSWER_CHARS]
    if not gold.text or not text:
        return False
    sides = _sides(text)
    if any(_equal(gold, side) for side in sides):
        return True
    statement = parse_statement(text)
    if statement is None:
        answer = answer_in_prose(text) if len(sides) == 1 else None
        return answer is not None and _equal(gold, answer)
    if set(statement.relations) <= set(_EQUALITIES):
        return any(_has_value(side, gold) for side in statement.sides)
    return False


def _equal(gold: Form, text: str) -> bool:
    return compare(gold, form_of(text))[0] is True


def _has_value(side: Expression, gold: Form) -> bool:
    """Tell whether a side, its units dropped, is the answer as a number."""
    value = value_in_lowest_terms(side)
    return value is not None and gold.value is not None and value == gold.value.number


def _sides(text: str) -> list[str]:
    """Return the whole and, where equalities alone join them, what stands between the signs."""
    sides = [text]
    start = depth = 0
    for token in tokenize(text):
        if token.kind is TokenKind.OPEN:
            depth += 1
        elif token.kind is TokenKind.CLOSE:
            depth -= 1
        elif token.kind is TokenKind.RELATION and depth == 0:
            if token.text not in _EQUALITIES:
                return [text]
            sides.append(text[start : token.start].strip())
            start = token.end
    if start:
        sides.append(text[start:].strip())
    return [side for side in sides if side]
