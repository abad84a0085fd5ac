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
    MAX_OPAQUE,
    MAX_SPAN,
    MAX_TOKEN,
    MIN_LIST,
    MIN_WORD,
    NO_PRODUCTS,
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
    solved_key,
    unshown_keys,
    values_key,
)
from consensuspr.core.pure.algebra.sides import (
    DIGITS,
    FUNCTION_NAMES,
    GREEK,
    LETTERS,
    Side,
    function_of,
    is_segment,
    is_worked_out,
    quotient,
    read_expression,
    read_side,
    unshown_operands,
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
    MEMBER = 8


_RELATIONS: Final = {
    text.encode(): relation for text, relation in zip("=≈<>≤≥≡≠∈", Relation, strict=True)
}
_MODS: Final = (b" mod ", b" modulo ")
_EQUALITIES: Final = (Relation.EQUAL, Relation.CONGRUENT)
# An item of its own, so that 1, 2, … is no list of two.
# Bytes that are looked at for a function and its argument.
_MAX_FUNCTION: Final = 24
_GREEK: Final = frozenset(letter for letter in GREEK if len(letter) == 2)
_IN_MODULUS: Final = LETTERS | DIGITS | frozenset(b"^")
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
        self._unshown = 0  # operands of the items that do not show their values
        # Whose values the items are, and the keys that say so: x = 2, 3.
        self._owner: Side | None = None
        self._values: list[int] = []
        self._start = self._end = 0  # of the run that is read
        self._list = (0, 0)  # from the first item to the last
        self._last_token = (0, 0)  # "mod" aside

    def runs(self) -> Iterator[FactRun]:
        """Yield what stands together, in order."""
        goes_on = related = False
        for start, end in _tokens(self._form):
            token = self._form[start:end]
            if start < self._end or token in (b"mod", b"modulo"):
                continue
            if token in (b"and", b"or") and self._end and start - self._end <= 2:
                goes_on = self._form[self._end : start] in (b" ", b",", b", ")
                continue
            pieces = self._pieces(start, end) if _may_say(token) else []
            # 2016 mod 1000 = 16 is one congruence.
            relates = bool(pieces) and isinstance(pieces[0].behind, Relation)
            follows = related and self._follows(start)
            if not pieces or not (goes_on or (relates and (follows or self._is_modulus(start)))):
                yield from self._finish()
                self._start = start
            related = relates
            goes_on = bool(pieces) and token.endswith((b",and", b",or"))
            self._read(pieces)
            self._last_token = start, end
        yield from self._finish()

    def _follows(self, start: int) -> bool:
        """Tell whether an equation stands on the line below another, or behind a semicolon."""
        gap = self._form[self._end : start]
        below = gap == b"\n" or (gap == b" " and self._form[self._end - 1] == ord(";"))
        return below and not self._items

    def _finish(self) -> Iterator[FactRun]:
        """Yield the run that ends here, if it says anything."""
        if not self._end:
            return
        start = self._list[0]
        if MIN_LIST <= len(self._items) <= MAX_LIST:
            key = combined(FactKind.LIST, (len(self._items), _sum(self._items)))
            self._take_list(FactKind.LIST, key, start)
        if 2 <= len(self._items) == len(self._values) <= MAX_JOINED:
            self._take_list(FactKind.VALUES, values_key(self._values), self._start)
        if self._facts or self._items:
            yield FactRun(self._facts, self._start, self._end, len(self._parts), len(self._items))
        self._facts, self._parts = [], []
        self._end = 0
        self._begin_list(None)

    def _take_list(self, kind: FactKind, key: int, start: int) -> None:
        """Take the list that the run is, or that begins in it."""
        keys = unshown_keys(kind, key, self._unshown) if self._unshown else (key,)
        self._facts.append(Fact(kind, keys, start, self._list[1], True))

    def _take(self, fact: Fact, part: bool) -> None:
        self._facts.append(fact)
        if part and fact.kind is not FactKind.IDENTITY:
            self._parts.append(fact)
            for count in range(2, min(MAX_JOINED, len(self._parts)) + 1):
                parts = self._parts[-count:]
                keys = [values_key([part.keys[0] for part in parts])]
                if any(map(_has_value, parts)):
                    keys.append(values_key([part.keys[_has_value(part)] for part in parts]))
                start = parts[0].start
                self._facts.append(Fact(FactKind.JOINED, tuple(keys), start, fact.end, False))

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
            if len(chain) == 1 and piece.behind == ord(":"):
                self._begin_list(None)
            elif len(chain) == 1:
                self._item(piece)
            else:
                lists = piece.behind == ord(",") and _begins_item(self._form, pieces[number + 1])
                self._chain(chain, lists)
            chain = []

    def _begin_list(self, owner: Side | None) -> None:
        """Begin to take the values of a name, or what stands for itself."""
        self._items, self._values = [], []
        self._unshown = 0
        self._owner = owner if owner is not None and owner.is_bare else None

    def _item(self, piece: _Piece) -> None:
        """Take an item of a list."""
        side, start, end = self._side(piece)
        if side is not None and not DIGITS.isdisjoint(self._form[start:end]):
            self._take_item(side, start, end)
        elif self._form[start:end] == _ELLIPSIS:
            self._add_item(combined(FactKind.LIST, ()), start, end)

    def _add_item(self, item: int, start: int, end: int) -> None:
        self._list = (self._list[0] if self._items else start), end
        self._items.append(item)

    def _take_item(self, side: Side | None, start: int, end: int) -> None:
        if side is None:
            return
        self._add_item(combined(FactKind.LIST, map(quotient, side.values)), start, end)
        self._unshown = _sum([self._unshown, unshown_operands([side])])
        if self._owner is not None and side.is_closed:
            self._values.append(solved_key(self._owner, side))

    def _chain(self, chain: list[_Piece], lists: bool) -> None:
        last = chain[-1]
        relations = [Relation(piece.behind) for piece in chain[:-1]][: MAX_CHAIN - 1]
        sides = [self._side(piece) for piece in chain[:MAX_CHAIN]]
        if lists and len(sides) == len(chain):
            # S = 1, 2, 3: not S = 1.
            side, start, end = sides.pop()
            if relations.pop() in (Relation.EQUAL, Relation.MEMBER):
                self._begin_list(sides[-1][0])
            self._take_item(side, start, end)
        if self._is_modulus(chain[0].start):
            modulus = _modulus_of(self._form[chain[0].start : chain[0].end])
            first, end = self._last_token
            before = self._pieces(first, end) if first < end else []
            if modulus and before:
                self._begin_list(None)
                sides[0] = self._side(before[-1])
                relations[:1] = [Relation.CONGRUENT] * len(relations[:1])
                self._congruences(sides, relations, modulus)
            return
        if all(relation in _EQUALITIES for relation in relations):
            modulus, end = self._modulus(last.end)
            if modulus:
                self._end = end
                self._congruences(sides, relations, modulus)
                return
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

    def _is_modulus(self, start: int) -> bool:
        """Tell whether "mod" stands before."""
        return self._form.endswith(_MODS, 0, start)

    def _modulus(self, at: int) -> tuple[int | Side, int]:
        """Return the modulus behind a chain, 0 if there is none, and where it ends."""
        mod = next((mod for mod in _MODS if self._form.startswith(mod, at)), None)
        if mod is None:
            return 0, at
        end = start = at + len(mod)
        while end < len(self._form) and (self._form[end] in _IN_MODULUS):
            end += 1
        return _modulus_of(self._form[start:end]), end

    def _congruences(
        self, sides: list[_Read], relations: list[Relation], modulus: int | Side
    ) -> None:
        for first, (left, start, _) in enumerate(sides):
            for last in range(first + 1, min(len(sides), first + MAX_SPAN)):
                right, _, end = sides[last]
                if relations[last - 1] not in _EQUALITIES:
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
            order: Relation | None = None  # a = b < c = d says a < d
            for last in range(first + 1, min(len(sides), first + MAX_SPAN)):
                relation, before = relations[last - 1], sides[last - 1][0]
                right, _, end = sides[last]
                whole = first == 0 and last == len(sides) - 1
                equal = relation is Relation.EQUAL or alone
                if right is None or not (equal or order is None):
                    break
                if not equal:
                    order = relation
                elif before is not None and before.is_closed and right.is_closed:
                    if not are_equal(before, right):
                        break  # what is false joins nothing
                    shown = left.is_closed or is_worked_out(before) or not is_worked_out(right)
                    if last > first + 1 and not whole and shown:
                        continue  # it says what the pair before has said
                if order is not None:
                    self._order(left, order, right, (start, end), whole, last == first + 1)
                elif left.items and right.items and not left.is_choice and not right.is_choice:
                    self._coordinates(left, right, (start, end))
                else:
                    found = equation_of(left, right)
                    if found is not None:
                        self._take(self._fact(found, start, end, whole), whole)

    def _coordinates(self, left: Side, right: Side, place: tuple[int, int]) -> None:
        """Take the equations of two points' coordinates: (x, y) = (2, 3)."""
        if len(left.items) == len(right.items):
            for one, other in zip(left.items, right.items, strict=True):
                found = equation_of(one, other)
                if found is not None:
                    self._take(self._fact(found, *place, False), True)

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
        self,
        left: Side,
        relation: Relation,
        right: Side,
        place: tuple[int, int],
        whole: bool,
        part: bool,
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
            self._take(Fact(kind, (order_of(left, right, kind),), *place, whole), part)


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


def _has_value(fact: Fact) -> bool:
    """Tell whether the second key is that of a value which is not worked out: x = 12/2."""
    return fact.kind in (FactKind.SOLVED, FactKind.VALUES) and len(fact.keys) > 1


def _sum(hashes: list[int]) -> int:
    return sum(hashes) & 0xFFFFFFFFFFFFFFFF


def _modulus_of(data: bytes) -> int | Side:
    """Return a modulus: a number, or an expression with names; 0 for none."""
    side = read_expression(data) if 0 < len(data) <= MAX_OPAQUE else None
    if side is None or not side.is_closed:
        return side or 0
    value = side.exact[-1]
    if value is None or value.denominator != 1 or not 2 <= value <= MAX_MODULUS:
        return 0
    return int(value)


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
    if form[at] != ord(" ") or at == start:
        return False
    behind = form[at + 1 : at + 1 + _MAX_FUNCTION]
    if (function_of(behind) and _is_factor(form, start, at)) or (
        form.endswith(FUNCTION_NAMES, start, at) and _begins_quotient(behind)
    ):
        return True
    if form[at - 1] not in DIGITS or not behind:
        return False
    if _begins_fraction(behind):
        return True
    if behind[:1] == b"[" and behind[1:2] and behind[1] in LETTERS:
        return True
    index = at
    while index > start and form[index - 1] in DIGITS:
        index -= 1
    return form[max(start, index - 4) : index] == b"log_"


def _is_factor(form: bytes, start: int, at: int) -> bool:
    """Tell whether what begins at ``start`` ends, before ``at``, with a factor of a function.

    That is a digit, a letter, a function or a short product: 2, θ, 2ab, sinx; no word.
    """
    first = at
    while first > max(start, at - _MAX_FUNCTION) and form[first - 1] in LETTERS:
        first -= 1
    run = form[first:at]
    if not run:
        return form[at - 1] in DIGITS or (form[at - 2 : at] in _GREEK and at - 2 >= start)
    short = len(run) < MIN_WORD and first > start and run.decode() not in NO_PRODUCTS
    return len(run) == 1 or short or is_segment(run) or bool(function_of(run))


def _begins_quotient(data: bytes) -> bool:
    """Tell whether a short fraction without a blank begins here: the argument of sin x/2."""
    bar = data.find(b"/", 0, _MAX_FUNCTION)
    return bar > 0 and b" " not in data[:bar] and b"\n" not in data[:bar]


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
    behind = form[piece.start : piece.end].removeprefix(b"-")
    number = behind[:1].isdigit() or behind.startswith("√".encode())
    return number and not isinstance(piece.behind, Relation)
