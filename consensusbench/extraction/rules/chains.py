"""Find the statements of a rollout in its normal form: chains of sides joined by relations.

The normal form has already dropped typesetting, units and blanks, so that a formula stands
between blanks as one run of characters.  A run is cut where a bracket has no partner and at
commas, semicolons and colons outside brackets; relations inside brackets, as in ``P(X=5)``,
belong to the side.  Linear in the length of the text.

Program code and markup tags are left out: what they hold says how a rollout was written, not
what it concluded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from consensuspr.core import normalize

RELATIONS = "=<>≤≥≈≡"
_SEPARATORS = ",;:"
_PARTNER = {")": "(", "]": "[", "}": "{"}
_RELATION = re.compile(f"[{RELATIONS}≠]")

_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_TAG = re.compile(r"</?[A-Za-z_][\w-]{0,32}>")
_FRACTION = re.compile(r"\d{1,3}/\d")

# Longer chains are steps of an algorithm written out; what they conclude stands at their end too.
MAX_SIDES = 16


class Chain(NamedTuple):
    """``sides[0] relations[0] sides[1] ...`` as they stand in the normal form.

    Attributes:
        sides: at least two, none empty, no two neighbours alike.
        relations: one fewer, each of :data:`RELATIONS`.
    """

    sides: tuple[str, ...]
    relations: str


class Link(NamedTuple):
    """Two neighbours of a chain and what joins them: the smallest statement."""

    left: str
    relation: str
    right: str

    @property
    def text(self) -> str:
        """The statement as it stands in the normal form."""
        return self.left + self.relation + self.right


def prose_of(response: str) -> str:
    """Return a response without its program code and its markup tags."""
    return _TAG.sub("\n", _FENCE.sub("\n", response))


def read_chains(response: str) -> Iterator[Chain]:
    """Yield the chains of a response in order, repetitions included."""
    tokens = normalize(prose_of(response)).split()
    for index, token in enumerate(tokens):
        if _RELATION.search(token):
            for piece in _pieces(_completed(tokens, index)):
                yield from _chains(piece)


def links_of(chain: Chain) -> Iterator[Link]:
    """Yield the neighbours of a chain."""
    for place, relation in enumerate(chain.relations):
        yield Link(chain.sides[place], relation, chain.sides[place + 1])


def _completed(tokens: list[str], index: int) -> str:
    """Return a token with the neighbours that belong to it although a blank divides them."""
    token = tokens[index]
    if "≡" in token and tokens[index + 1 : index + 2] == ["mod"] and index + 2 < len(tokens):
        token = " ".join(tokens[index : index + 3])
    if _FRACTION.match(token) and index and tokens[index - 1].isdecimal():
        token = f"{tokens[index - 1]} {token}"  # a mixed number
    return token


def _pieces(token: str) -> Iterator[str]:
    """Yield what stands between the separators and the brackets that have no partner."""
    cuts = _lonely_brackets(token)
    depth = start = 0
    for place, character in enumerate(token):
        if place in cuts or (not depth and character in _SEPARATORS):
            yield token[start:place]
            start = place + 1
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
    yield token[start:]


def _lonely_brackets(token: str) -> set[int]:
    opened: list[int] = []
    lonely: set[int] = set()
    for place, character in enumerate(token):
        if character in "([{":
            opened.append(place)
        elif character in ")]}":
            if opened and token[opened[-1]] == _PARTNER[character]:
                opened.pop()
            else:
                lonely.add(place)
    return lonely.union(opened)


def _chains(piece: str) -> Iterator[Chain]:
    """Yield the chains of a piece: more than one where a side is missing or ``≠`` joins two."""
    sides: list[str] = []
    relations: list[str] = []
    for side, relation in _sides(piece):
        side = side.strip(".?! ")
        if not side or side[0] in "*/^" or side[-1] in "+-*/^":  # an operand is missing
            yield from _chain(sides, relations)
            sides, relations = [], []
            continue
        if sides and side == sides[-1]:
            relations[-1:] = [relation]
            continue
        sides.append(side)
        relations.append(relation)
        if relation == "≠":
            yield from _chain(sides, relations)
            sides, relations = [], []
    yield from _chain(sides, relations)


def _chain(sides: list[str], relations: list[str]) -> Iterator[Chain]:
    if len(sides) > 1:
        # The last relation is the one that follows the last side.
        yield Chain(tuple(sides[:MAX_SIDES]), "".join(relations[: min(len(sides), MAX_SIDES) - 1]))


def _sides(piece: str) -> Iterator[tuple[str, str]]:
    """Yield each side with the relation that follows it; the last one with none."""
    depth = start = 0
    for place, character in enumerate(piece):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif not depth and _RELATION.match(character):
            yield piece[start:place], character
            start = place + 1
    yield piece[start:], ""
