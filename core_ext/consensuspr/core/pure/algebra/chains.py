"""Chains of sides in a normal form, and what they say.

A form becomes tokens without blanks, a token pieces between relations and separators, pieces a
chain.  Each pair of sides that equalities join says something of its own; so do a list of values,
and equations that stand together.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from consensuspr.core.algebra import (
    MAX_CHAIN,
    MAX_DEPTH,
    MAX_JOINED,
    MAX_LIST,
    MAX_MODULUS,
    MAX_SPAN,
    MAX_TOKEN,
    MIN_LIST,
    Fact,
    FactKind,
    FactRun,
    combined,
)
from consensuspr.core.pure.algebra.keys import (
    KeyedEquation,
    are_equal,
    can_be_renamed,
    congruence_of,
    equation_of,
    order_of,
    renamed_key,
    shape_of,
    size_of,
)
from consensuspr.core.pure.algebra.sides import (
    DIGITS,
    LETTERS,
    Side,
    function_of,
    quotient,
    read_side,
)
from consensuspr.core.tables import PARAGRAPH


class Relation(IntEnum):
    """What joins two sides."""

    EQUAL = 0
    APPROXIMATE = 1
    LESS = 2
    GREATER = 3
    AT_MOST = 4
    AT_LEAST = 5
    CONGRUENT = 6
    UNEQUAL = 7


_RELATIONS: Final = {
    text.encode(): relation for text, relation in zip("=≈<>≤≥≡≠", Relation, strict=True)
}
_MOD: Final = b" mod "
# An item of its own, so that 1, 2, … is no list of two.
_ELLIPSIS: Final = "…".encode()


class _Piece(NamedTuple):
    """Bytes [start, end) between two relations or separators, and what stands behind them."""

    start: int
    end: int
    behind: Relation | int  # a relation, or the byte of a separator; 0 at the end of a token


# A side, None if it says nothing, and its place.
_Read: TypeAlias = "tuple[Side | None, int, int]"


class FactReader:
    """Reads what a normal form says.

    Args:
        form: the normal form, or whole paragraphs of one.
        shapes: of which equations the key whatever the names are is wanted; None for all.
    """

    def __init__(self, form: bytes, shapes: Container[int] | None = None) -> None:
        self._form = form
        self._shapes = shapes
        self._facts: list[Fact] = []
        self._parts: list[Fact] = []
        self._items: list[int] = []
        self._start = self._end = 0  # of the run that is read
        self._last_token = (0, 0)  # "mod" aside

    def runs(self) -> Iterator[FactRun]:
        """Yield what stands together, in order."""
        goes_on = False
        for start, end in _tokens(self._form):
            token = self._form[start:end]
            if start < self._end or token == b"mod":
                continue
            if token in (b"and", b"or") and self._end and start - self._end <= 2:
                goes_on = self._form[self._end : start] in (b" ", b",", b", ")
                continue
            pieces = self._pieces(start, end) if _may_say(token) else []
            if not pieces or not goes_on:
                yield from self._finish()
                self._start = start
            goes_on = bool(pieces) and token.endswith((b",and", b",or"))
            self._read(pieces)
            self._last_token = start, end
        yield from self._finish()

    def _finish(self) -> Iterator[FactRun]:
        """Yield the run that ends here, if it says anything."""
        if not self._end:
            return
        if MIN_LIST <= len(self._items) <= MAX_LIST:
            key = combined(FactKind.LIST, (len(self._items), _sum(self._items)))
            end = self._end
            while self._form[end - 1] in b".?":  # the sentence ends, too
                end -= 1
            self._facts.append(Fact(FactKind.LIST, (key,), self._start, end, True))
        if self._facts or self._items:
            yield FactRun(self._facts, self._start, self._end, len(self._parts), len(self._items))
        self._facts, self._parts, self._items = [], [], []
        self._end = 0

    def _take(self, fact: Fact, part: bool) -> None:
        self._facts.append(fact)
        if part:
            self._parts.append(fact)
            for count in range(2, min(MAX_JOINED, len(self._parts)) + 1):
                parts = self._parts[-count:]
                key = combined(FactKind.JOINED, (count, _sum([part.keys[0] for part in parts])))
                self._facts.append(Fact(FactKind.JOINED, (key,), parts[0].start, fact.end, False))

    # Pieces of a token.

    def _pieces(self, start: int, end: int) -> list[_Piece]:
        """Cut a token at relations and separators outside brackets.

        A bracket around a relation holds an equation of its own, unless it is an argument.
        """
        form = self._form
        cuts = self._cuts(start, end)
        if cuts is None:
            return []
        pieces = []
        depth = 0
        first = at = start
        while at < end:
            byte = form[at]
            relation = _relation_at(form, at) if depth == 0 else None
            if at in cuts:
                pieces.append(_Piece(first, at, byte))
                first = at + 1
            elif byte in b"([":
                depth += 1
            elif byte in b")]":
                depth -= 1
            elif relation is not None:
                pieces.append(_Piece(first, at, relation[0]))
                at += relation[1] - 1
                first = at + 1
            elif depth == 0 and (byte in b",;?" or (byte == ord(":") and self._labels(first, at))):
                pieces.append(_Piece(first, at, byte))
                first = at + 1
            at += 1
        pieces.append(_Piece(first, end, 0))
        return pieces

    def _labels(self, start: int, at: int) -> bool:
        """Tell whether a colon ends a label; else it is a ratio."""
        label = self._form[start:at]
        if not label or label.isdigit() or label[-1] in b").!":
            return True
        if label[-1] not in LETTERS:
            return False
        # S:1,2,3 is labelled; a:b is a ratio.
        is_word = len(label) > 1 and label[-2] in LETTERS
        return is_word or self._form[at + 1 : at + 2].isdigit()

    def _cuts(self, start: int, end: int) -> set[int] | None:
        """Return the brackets that hold an equation or have no partner; None if too deep."""
        form = self._form
        opened: list[tuple[int, bool]] = []  # place, and whether a relation stands in it
        cuts: set[int] = set()
        for at in range(start, end):
            byte = form[at]
            if byte in b"([":
                if len(opened) == MAX_DEPTH:
                    return None
                opened.append((at, False))
            elif byte in b")]":
                if not opened or (form[opened[-1][0]] == ord("(")) != (byte == ord(")")):
                    cuts.add(at)
                    continue
                place, holds = opened.pop()
                if holds and not (place > start and _calls(form[place - 1])):
                    cuts.update((place, at))
            elif opened and _relation_at(form, at):
                opened[-1] = opened[-1][0], True
        cuts.update(place for place, _ in opened)
        return cuts

    # Chains.

    def _read(self, pieces: list[_Piece]) -> None:
        """Read the chains and the items of a token."""
        chain: list[_Piece] = []
        for number, piece in enumerate(pieces):
            chain.append(piece)
            if isinstance(piece.behind, Relation):
                continue
            self._end = piece.end
            if len(chain) == 1:
                self._item(piece)
            else:
                lists = piece.behind == ord(",") and _begins_item(self._form, pieces[number + 1])
                self._chain(chain, lists)
            chain = []

    def _item(self, piece: _Piece) -> None:
        """Take an item of a list."""
        side, start, end = self._side(piece)
        if side is not None and not DIGITS.isdisjoint(self._form[start:end]):
            self._items.append(_item_hash(side))
        elif self._form[start:end] == _ELLIPSIS:
            self._items.append(combined(FactKind.LIST, ()))

    def _chain(self, chain: list[_Piece], lists: bool) -> None:
        last = chain[-1]
        relations = [Relation(piece.behind) for piece in chain[:-1]][: MAX_CHAIN - 1]
        sides = [self._side(piece) for piece in chain[:MAX_CHAIN]]
        if lists and len(sides) == len(chain):
            # S = 1, 2, 3: not S = 1.
            side = sides.pop()[0]
            relations.pop()
            if side is not None:
                self._items.append(_item_hash(side))
        start = chain[0].start
        if self._form[max(0, start - len(_MOD)) : start] == _MOD:
            modulus = _modulus_of(self._form[start : chain[0].end])
            before = self._pieces(*self._last_token)
            if modulus and before:
                sides[0] = self._side(before[-1])
                relations[:1] = [Relation.CONGRUENT] * len(relations[:1])
                self._congruences(sides, relations, modulus)
            return
        modulus, end = self._modulus(last.end)
        if modulus and Relation.CONGRUENT in relations:
            self._end = end
            self._congruences(sides, relations, modulus)
        else:
            self._equalities(sides, relations)

    def _side(self, piece: _Piece) -> _Read:
        form, start, end = self._form, piece.start, piece.end
        while end > start and form[end - 1] in b".?":
            end -= 1
        while start < end and form[start] == ord("."):
            start += 1
        data = form[start:end]
        # Behind a number and a blank a bracket may be a factor: 3 (x+1)=6.
        factor = data[:1] in (b"(", b"[") and start > 1 and form[start - 1] == ord(" ")
        if (
            not data
            or data[0] in b"*/^"
            or data[-1] in b"+-*/^"
            or (factor and form[start - 2] in DIGITS)
        ):
            return None, start, end
        return read_side(data), start, end

    def _modulus(self, at: int) -> tuple[int, int]:
        """Return the modulus behind a chain, 0 if there is none, and where it ends."""
        if not self._form.startswith(_MOD, at):
            return 0, at
        end = start = at + len(_MOD)
        while end < len(self._form) and self._form[end] in DIGITS:
            end += 1
        return _modulus_of(self._form[start:end]), end

    def _congruences(self, sides: list[_Read], relations: list[Relation], modulus: int) -> None:
        for first, (left, start, _) in enumerate(sides):
            for last in range(first + 1, min(len(sides), first + MAX_SPAN)):
                right, _, end = sides[last]
                if relations[last - 1] not in (Relation.EQUAL, Relation.CONGRUENT):
                    break
                if left is None or right is None:
                    continue
                key = congruence_of(left, right, modulus)
                if key:
                    whole = first == 0 and last == len(sides) - 1
                    end = max(end, self._end) if whole else end
                    self._take(Fact(FactKind.CONGRUENCE, (key,), start, end, whole), whole)

    def _equalities(self, sides: list[_Read], relations: list[Relation]) -> None:
        alone = relations == [Relation.APPROXIMATE]
        for first, (left, start, _) in enumerate(sides):
            if left is None:
                continue
            for last in range(first + 1, min(len(sides), first + MAX_SPAN)):
                relation, before = relations[last - 1], sides[last - 1][0]
                right, _, end = sides[last]
                whole = first == 0 and last == len(sides) - 1
                if right is None:
                    break
                if relation is not Relation.EQUAL and not alone:
                    if last == first + 1:
                        self._order(left, relation, right, (start, end), whole)
                    break
                if before is not None and before.is_closed and right.is_closed:
                    if not are_equal(before, right):
                        break  # what is false joins nothing
                    if last > first + 1 and not whole:
                        continue  # it says what the pair before has said
                found = equation_of(left, right)
                if found is not None:
                    self._take(self._fact(found, start, end, whole), whole)

    def _fact(self, equation: KeyedEquation, start: int, end: int, whole: bool) -> Fact:
        kind, keys = equation.kind, equation.keys
        if not can_be_renamed(equation) or self._shapes == frozenset():
            return Fact(kind, keys, start, end, whole)
        shape = shape_of(equation)
        wanted = self._shapes is None or shape in self._shapes
        renamed = renamed_key(equation) if wanted else 0
        names = len({*equation.left.names, *equation.right.names})
        return Fact(kind, keys, start, end, whole, size_of(equation), names, shape, renamed)

    def _order(
        self, left: Side, relation: Relation, right: Side, place: tuple[int, int], whole: bool
    ) -> None:
        if relation in (Relation.GREATER, Relation.AT_LEAST):
            left, right = right, left
        if relation in (Relation.LESS, Relation.GREATER):
            kind = FactKind.ORDER
        elif relation in (Relation.AT_MOST, Relation.AT_LEAST):
            kind = FactKind.ORDER_OR_EQUAL
        else:
            return
        if not (left.is_closed and right.is_closed):
            self._take(Fact(kind, (order_of(left, right, kind),), *place, whole), part=True)


def read_facts(form: bytes, shapes: Container[int] | None = None) -> list[FactRun]:
    """Return what a normal form says, paragraph by paragraph; see :class:`FactReader`."""
    found = []
    at = 0
    for paragraph in form.split(PARAGRAPH.encode()):
        for run in FactReader(paragraph, shapes).runs():
            facts = [fact._replace(start=fact.start + at, end=fact.end + at) for fact in run.facts]
            found.append(run._replace(facts=facts, start=run.start + at, end=run.end + at))
        at += len(paragraph) + len(PARAGRAPH)
    return found


def _sum(hashes: list[int]) -> int:
    return sum(hashes) & 0xFFFFFFFFFFFFFFFF


def _item_hash(side: Side) -> int:
    return combined(FactKind.LIST, map(quotient, side.values))


def _modulus_of(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > len(str(MAX_MODULUS)):
        return 0
    modulus = int(digits)
    return modulus if 2 <= modulus <= MAX_MODULUS else 0


def _tokens(form: bytes) -> Iterator[tuple[int, int]]:
    """Yield what stands between blanks; a blank inside a product or a mixed number is none."""
    start = 0
    for at in range(len(form) + 1):
        if at < len(form) and (form[at] not in b" \n" or _joins(form, start, at)):
            continue
        if start < at <= start + MAX_TOKEN:
            yield start, at
        start = at + 1


def _joins(form: bytes, start: int, at: int) -> bool:
    """Tell whether the blank at ``at`` stands within an expression that begins at ``start``."""
    if form[at] != ord(" ") or at == start or form[at - 1] not in DIGITS:
        return False
    behind = form[at + 1 :][:24]
    if not behind:
        return False
    if _begins_fraction(behind) or function_of(behind):
        return True
    if behind[:1] == b"[" and behind[1:2] and behind[1] in LETTERS:
        return True
    index = at
    while index > start and form[index - 1] in DIGITS:
        index -= 1
    return form[max(start, index - 4) : index] == b"log_"


def _begins_fraction(data: bytes) -> bool:
    bar = data.find(b"/", 0, 4)
    return bar > 0 and data[:bar].isdigit() and data[bar + 1 : bar + 2].isdigit()


def _may_say(token: bytes) -> bool:
    """Tell whether a token has a relation or a number; all others are words."""
    return not DIGITS.isdisjoint(token) or any(relation in token for relation in _RELATIONS)


def _relation_at(form: bytes, at: int) -> tuple[Relation, int] | None:
    for text, relation in _RELATIONS.items():
        if form.startswith(text, at):
            return relation, len(text)
    return None


def _calls(before: int) -> bool:
    """Tell whether a bracket behind this byte holds an argument, an index or a factor."""
    return before in LETTERS or before in DIGITS or before in b"_^)]"


def _begins_item(form: bytes, piece: _Piece) -> bool:
    """Tell whether a piece without a relation begins like a value: S = 1, 2, 3."""
    behind = form[piece.start : piece.end]
    return (
        not isinstance(piece.behind, Relation)
        and behind[:1] != b""
        and (behind[0] in DIGITS or (behind[0] == ord("-") and behind[1:2].isdigit()))
    )
