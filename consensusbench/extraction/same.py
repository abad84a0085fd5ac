"""Whether two wordings provably say the same.

Three proofs, each exact: the same normal form; derived forms that meet (a form is true
exactly where its expression is, unless it is a part of a chain of equalities); the same
tree but for the order of terms, factors and sides, however many there are.  Equal value is
no proof: ``2+2=4`` and ``8/2=4`` are both true, and different conclusions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from consensuspr.core import derive_forms, normalize
from consensuspr.core.expansion.statement import Statement, parse_statement
from consensuspr.core.expansion.tree import Call, Expression, Number, Power, Product, Sum, Symbol

_PUNCTUATION = " .,;:?"
_MIRRORED = {"<": ">", "<=": ">="}


@dataclass(frozen=True, slots=True)
class Wording:
    """One way of writing a statement, with what tells whether another says the same.

    Attributes:
        text: as written.
        normal: its normal form without punctuation at the ends; empty where nothing is left.
        derived: the core's forms of it as text.
        is_chain: it has more than two sides; its derived forms then hold parts of it, which
            it implies and which do not imply it.
        forms: the normal forms of the text and of what is equal to it.
        structure: its tree without order, None for prose and for a bare symbol or number.
    """

    text: str
    normal: str
    derived: tuple[str, ...]
    is_chain: bool
    forms: frozenset[str]
    structure: str | None


def read_wording(text: str) -> Wording:
    """Return what can be proved about a text with; takes some 0.1 ms."""
    statement = parse_statement(text)
    is_chain = statement is not None and len(statement.sides) > 2
    derived = tuple(derive_forms(text))
    normal = normal_form(text)
    equal = (normal,) if is_chain else (normal, *map(normal_form, derived))
    forms = frozenset(form for form in equal if form)
    return Wording(text, normal, derived, is_chain, forms, statement_structure(statement))


def normal_form(text: str) -> str:
    """Return the normal form as a matcher searches for it."""
    return normalize(text).strip(_PUNCTUATION)


def say_the_same(a: Wording, b: Wording) -> bool:
    """Tell whether two wordings are provably the same statement."""
    if not a.forms.isdisjoint(b.forms):
        return True
    return a.structure is not None and a.structure == b.structure


def forms_beyond(
    expressions: Sequence[str], rewritten: Sequence[str] = (), limit: int | None = None
) -> tuple[str, ...]:
    """Return the forms of a node that its expressions do not have, each normal form once.

    Args:
        expressions: the wordings as written.
        rewritten: further equal wordings, which come first.
        limit: on the number of forms; the nearest forms of every expression come before the
            farther ones of any.
    """
    seen = {normal_form(text) for text in expressions} | {""}
    derived = zip_longest(*map(derive_forms, expressions))
    kept: list[str] = []
    for form in (*rewritten, *(form for rank in derived for form in rank if form is not None)):
        normal = normal_form(form)
        if normal not in seen:
            seen.add(normal)
            kept.append(form)
    return tuple(kept[:limit])


def group_same(wordings: Sequence[Wording]) -> list[list[int]]:
    """Return the classes of wordings that say the same, as indices in the order given."""
    classes: list[list[int]] = []
    owner: dict[str, int] = {}
    for index, wording in enumerate(wordings):
        marks = _marks(wording)
        found = sorted({owner[mark] for mark in marks if mark in owner})
        target = found[0] if found else len(classes)
        if not found:
            classes.append([])
        for other in found[1:]:  # this wording proves that two classes are one
            classes[target].extend(classes[other])
            classes[other] = []
            owner.update({mark: target for mark, place in owner.items() if place == other})
        classes[target].append(index)
        owner.update(dict.fromkeys(marks, target))
    return [sorted(members) for members in classes if members]


def _marks(wording: Wording) -> list[str]:
    marks = ["form " + form for form in sorted(wording.forms)]
    return marks if wording.structure is None else [*marks, "tree " + wording.structure]


def statement_structure(statement: Statement | None) -> str | None:
    """Return a text that is equal for statements which differ in nothing but order.

    The order is that of the terms of a sum, the factors of a product, and the sides.

    Args:
        statement: as the core parses it; None for prose.

    Returns:
        None for prose, and for a number or symbol without a relation.
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
