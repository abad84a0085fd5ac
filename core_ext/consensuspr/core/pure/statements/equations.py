"""Statements from items: both sides of each sign of equality, worked out and compared.

A chain ``a = b = c`` states each neighbouring pair, and ``a = c``.  A side is worked out once and
states once, however many pairs it is in.  An equation may also stand on two lines: on one
``speed = 120/3`` and later ``speed = 40``, or ``3x = 48`` and then ``x = 16``.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from fractions import Fraction
from functools import cache

from consensuspr.core.patterns import Magnitude
from consensuspr.core.pure.statements.arithmetic import (
    ArithmeticItem,
    ExactValue,
    ItemKind,
    agree,
    evaluate,
    run_after,
    run_before,
)
from consensuspr.core.pure.statements.numbers import WrittenNumber
from consensuspr.core.statements import MAX_DIGITS, MAX_INT, MAX_SIDE, TrueStatement


class StatementLog:
    """What has been found in a text so far, prose and code together.

    Attributes:
        statements: in the order in which they were read, places in characters.
        numbers: distinct magnitudes of the numbers written.
        results: where those were last written that can be a result of the code before.
    """

    def __init__(self) -> None:
        self.statements: list[TrueStatement] = []
        self.numbers: set[Magnitude] = set()
        self.results: dict[WrittenNumber, float] = {}

    def state(
        self, parts: list[ExactValue], start: int, end: int, code: bool, whole: bool = True
    ) -> None:
        """Take the operations of one side; the last is the side itself if ``whole``."""
        last = len(parts) if whole else 0
        for index, part in enumerate(parts, 1):
            whole = index == last
            self.statements.append(TrueStatement(part.key, start, end, whole, code, not code))

    def count(self, number: WrittenNumber, at: float | None) -> None:
        """Take a number: a possible result of code before ``at``, or of none if that is None."""
        self.numbers.add(number.magnitude)
        if at is not None and number.decimals is not None and number.decimals <= MAX_DIGITS:
            self.results[number] = max(at, self.results.get(number, at))

    def find_results(self) -> None:
        """Mark the statements of code whose result is written, once the text has been read.

        Literals before the end of the statement do not count, so its operands do not.
        """
        last = cache(self._last_written)
        self.statements = [
            one._replace(written=last(*one.key.value) >= one.end) if one.code else one
            for one in self.statements
        ]

    def _last_written(self, numerator: int, denominator: int) -> float:
        """Return where a number was last written that equals a value or rounds it, -1 if never.

        It rounds to the decimals that it shows.  A fraction below 1 needs a decimal that is not 0,
        so that no 0 or 1 stands for it.
        """
        last = -1.0
        for decimals in range(0 < abs(numerator) < denominator, MAX_DIGITS + 1):
            whole, rest = divmod(abs(numerator) * 10**decimals, denominator)
            if whole >= MAX_INT:
                break
            for units in (whole + (2 * rest > denominator), whole + (2 * rest >= denominator)):
                if units or not numerator:
                    number = WrittenNumber(Fraction(units, 10**decimals), decimals)
                    last = max(last, self.results.get(number, -1))
        return last


class _Side:
    """One run and its value, worked out once."""

    def __init__(self, items: list[ArithmeticItem], start: int, end: int) -> None:
        self.start = items[start].start
        self.end = items[end - 1].end
        self.first_item = start
        self.end_item = end
        self.result = evaluate(items, start, end)
        self.stated = self.whole = False
        self.is_fraction = (
            self.result is not None
            and self.result[0].operations == 1
            and self.result[0].number.denominator > 1
            and any(item.op == "/" for item in items[start:end])
        )

    @property
    def calculates(self) -> bool:
        """Whether it is neither a number nor a fraction."""
        return self.result is not None and self.result[0].operations > 0 and not self.is_fraction


class Equations:
    """Reads the equations of one text's prose, stretch by stretch."""

    def __init__(self, log: StatementLog) -> None:
        self._log = log
        # The last "name = ...", and its right side.
        self._named: tuple[str, _Side] | None = None

    def read(self, items: list[ArithmeticItem]) -> None:
        """Read the statements around each sign of a stretch."""
        signs = [index for index, item in enumerate(items) if item.kind is ItemKind.SIGN]
        before, after = _sides(items, signs)
        for number, index in enumerate(signs):
            sign, left, right = items[index], before[number], after[number]
            if left is None:
                if sign.name and right is not None:
                    self._name(sign, right)
                continue
            agrees = self._pair(left, right, sign.approximate, sign.verb)
            if agrees and number + 1 < len(signs):
                following = items[signs[number + 1]]
                if _links(items[index + 1 : signs[number + 1]]):
                    self._pair(
                        left,
                        after[number + 1],
                        sign.approximate or following.approximate,
                        sign.verb or following.verb,
                    )

    def _pair(self, left: _Side, right: _Side | None, approximate: bool, verb: bool) -> bool:
        """State both sides of an equation if it is true and has an operation.

        A verb is a sign only where the operation is on its left.

        Returns:
            False if the equation is wrong.
        """
        if right is None or left.result is None or right.result is None:
            return True
        (first, first_parts), (second, second_parts) = left.result, right.result
        if not agree(first, second, approximate):
            return False
        if not first.operations and (verb or not second.operations):
            return True
        if _same(first_parts, second_parts):
            return True
        for side, parts, other, value in (
            (left, first_parts, right, second), (right, second_parts, left, first),
        ):  # fmt: skip
            # In 1/3 - 1/21 = 6/21 the fraction is a value.
            whole = not (value.repeats or (side.is_fraction and other.calculates))
            if not side.stated or (side.is_fraction and not value.operations and not side.whole):
                side.stated, side.whole = True, whole
                self._log.state(parts, left.start, right.end, code=False, whole=whole)
            if value.repeats and parts:
                # 0.(2) is more than a value: a node that says so is not reached by 0.2 = 2/9.
                exact = parts[-1]._replace(operands=(*parts[-1].operands, abs(value.number)))
                self._log.state([exact], left.start, right.end, code=False)
        return True

    def _name(self, sign: ArithmeticItem, right: _Side) -> None:
        """Read "speed = 120 / 3" and, on a later line, "speed = 40" as one equation."""
        if self._named is not None:
            name, side = self._named
            if name == sign.name:
                self._pair(side, right, sign.approximate, sign.verb)
            else:
                self._solve(name, side, sign.name, right)
        self._named = sign.name, copy(right)

    def _solve(self, multiple: str, product: _Side, name: str, right: _Side) -> None:
        """Read "3x = 48" and then "x = 16" as 48/3 = 16."""
        rest = multiple.lstrip("0123456789")
        digits = multiple[: len(multiple) - len(rest)]
        if rest != name or not 0 < len(digits) <= MAX_DIGITS or int(digits) == 0:
            return
        if product.result is None or right.result is None:
            return
        whole, part, factor = product.result[0], right.result[0], Fraction(int(digits))
        if whole.operations or part.operations or part.number * factor != whole.number:
            return
        quotient = ExactValue(part.number, (*whole.operands, factor), 1)
        self._log.state([quotient], product.start, right.end, code=False)


def _sides(
    items: list[ArithmeticItem], signs: list[int]
) -> tuple[list[_Side | None], list[_Side | None]]:
    """Return what stands before and after each sign; the same side where it is both."""
    before: list[_Side | None] = []
    after: list[_Side | None] = []
    for sign, last, following in zip(signs, [-1, *signs], [*signs[1:], len(items)], strict=False):
        start = run_before(items, sign, last + 1)
        shared = after[-1] if after else None
        if start == sign:
            before.append(None)
        elif shared is not None and (shared.first_item, shared.end_item) == (start, sign):
            before.append(shared)
        else:
            before.append(_Side(items, start, sign))
        end = run_after(items, sign + 1, following)
        after.append(_Side(items, sign + 1, end) if end > sign + 1 else None)
    return before, after


def _same(first: list[ExactValue], second: list[ExactValue]) -> bool:
    """Tell whether two sides do the same operations: A = A tells no value."""
    return [part.key for part in first] == [part.key for part in second]


def _links(between: Iterable[ArithmeticItem]) -> bool:
    """Tell whether what stands between two signs makes a chain of them."""
    kinds = [item.kind for item in between]
    return len(kinds) <= MAX_SIDE and ItemKind.STOP not in kinds
