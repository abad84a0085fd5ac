"""What a rollout concludes: its statements, each with its words, its value and its structure.

False arithmetic is left out: a correct rollout may hold a slip.  A statement that its own
rollout does not match is a piece of something larger and left out as well: the matcher that
will look for it later must be able to find it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from fractions import Fraction
from typing import NamedTuple

from consensusbench.extraction.rules.chains import Link, links_of, read_chains
from consensusbench.extraction.rules.settings import RulesSettings
from consensusbench.extraction.same import statement_structure
from consensusbench.extraction.support import find_mentions
from consensusbench.extraction.truth import Truth, truth_of
from consensusbench.extraction.types import CorrectRollout
from consensuspr.core.expansion.evaluate import evaluate, is_constant
from consensuspr.core.expansion.forms import value_in_lowest_terms
from consensuspr.core.expansion.lexer import Kind as TokenKind
from consensuspr.core.expansion.lexer import tokenize
from consensuspr.core.expansion.statement import Statement, parse_statement
from consensuspr.core.expansion.tree import Call, Expression, Number, Symbol


class Kind(Enum):
    """What a statement does with its value."""

    COMPUTED = "computed"  # 3*10=30
    ASSIGNED = "assigned"  # x=30, P(A)=1/4
    FORMULA = "formula"  # a+b=c, 2x=66, x<5


class Conclusion(NamedTuple):
    """A statement of one rollout.

    Attributes:
        kind: what it does with its value.
        structure: equal for statements that differ in the order of operands and sides only.
        value: what it gives, None for a formula.
        is_worded: it names a quantity by a word, as in ``total = 18``; a wording, and never a
            conclusion by itself.
        chain: number of the chain that it stands in, counted through the rollout.
        wording: as written.
        position: of its first mention in the response, from 0 to 1.
    """

    kind: Kind
    structure: str
    value: Fraction | None
    is_worded: bool
    chain: int
    wording: str
    position: float


def read_conclusions(rollout: CorrectRollout, settings: RulesSettings) -> list[Conclusion]:
    """Return the distinct statements of a rollout in order of their first chain."""
    links = _distinct_links(rollout.response, settings)
    found: list[Conclusion] = []
    mentioned = find_mentions([[link.text] for link in links], [rollout])
    for (link, chain), mentions in zip(links.items(), mentioned, strict=True):
        for mention in mentions:
            found.extend(_conclusions(link, chain, mention.wording, mention.position))
    return found


def _distinct_links(response: str, settings: RulesSettings) -> dict[Link, int]:
    """Return each link with the number of the first chain that holds it."""
    links: dict[Link, int] = {}
    for number, chain in enumerate(read_chains(response)):
        for link in links_of(chain):
            if sum(map(len, link)) <= settings.max_statement_chars:
                links.setdefault(link, number)
        if len(links) >= settings.max_statements:
            break
    return links


def _conclusions(link: Link, chain: int, wording: str, position: float) -> Iterator[Conclusion]:
    """Yield what a link concludes; nothing where it is false, no statement or says nothing."""
    if truth_of(wording) is Truth.FALSE:
        return
    # Words around a formula can make prose of it; the normal form is without them.
    statement = _two_sided(wording) or _two_sided(link.text)
    if statement is None:
        return
    structure = statement_structure(statement)
    kind, value = _judge(statement)
    if structure is None or _says_nothing(statement):
        return
    is_worded = kind is not Kind.COMPUTED and _names_in_words(wording)
    if kind is Kind.FORMULA and is_worded:
        return
    yield Conclusion(kind, structure, value, is_worded, chain, wording, position)


def _names_in_words(wording: str) -> bool:
    """Tell whether a quantity is named by a word, as in ``total = price * count``.

    Everybody names them differently, so that such a formula is found in hardly another solution.
    """
    return any(
        token.kind is TokenKind.WORD and not token.text.isupper() for token in tokenize(wording)
    )


def _two_sided(text: str) -> Statement | None:
    statement = parse_statement(text)
    return statement if statement is not None and len(statement.sides) == 2 else None


def _says_nothing(statement: Statement) -> bool:
    """Tell whether it is arithmetic without a result (30+40=35*2) or without a step (5=5.0)."""
    if None in [evaluate(side) for side in statement.sides]:
        return False
    literals = sum(map(_is_literal, statement.sides))
    fractions = sum(value_in_lowest_terms(side) is not None for side in statement.sides)
    return literals == 2 or (not literals and fractions != 1)


def _judge(statement: Statement) -> tuple[Kind, Fraction | None]:
    left, right = statement.sides
    if statement.relations[0] not in ("=", "≈") or statement.tail:
        return Kind.FORMULA, None
    # 10/3=3.33 gives what is written, not what it should be.
    results = sorted(((left, right), (right, left)), key=lambda pair: not _is_literal(pair[1]))
    for side, result in results:
        # A number, not something to compute: "total = 12+6" does not say 18.
        value = value_in_lowest_terms(result)
        if value is not None and _is_name(side):
            return Kind.ASSIGNED, value
        if value is not None and is_constant(side):
            return Kind.COMPUTED, value
    return Kind.FORMULA, None


def _is_literal(tree: Expression) -> bool:
    return isinstance(tree, Number)


def _is_name(side: Expression) -> bool:
    if isinstance(side, Call):
        return side.pieces[0][:1].isalpha()
    return isinstance(side, Symbol) and not is_constant(side)
