"""Sides of equations: from the bytes of a normal form to postfix order and to values.

A side is read by operator precedence, without recursion.  Its value is a ratio modulo a prime at
each of three points, where names are pseudo-random numbers; beside it stands the exact value of
what holds no names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from fractions import Fraction
from math import comb, factorial, isqrt
from typing import Final, NamedTuple, TypeAlias

from consensuspr.core.algebra import (
    CALLED,
    FUNCTIONS,
    MAX_CODE,
    MAX_COORDINATES,
    MAX_DEPTH,
    MAX_EXACT_BINOMIAL,
    MAX_EXACT_FACTORIAL,
    MAX_FACTORIAL,
    MAX_OCCURRENCES,
    MAX_OPAQUE,
    MAX_POWER,
    MAX_SIDE_BYTES,
    MAX_SIDE_NAMES,
    MIN_WORD,
    NO_PRODUCTS,
    POINTS,
    PRIME,
    SQUARES,
    SYMMETRIC,
    combined,
    element,
    name_hash,
    point_of,
)
from consensuspr.core.statements import MAX_DIGITS, MAX_INT


class Op(IntEnum):
    """One step of a side's program."""

    NUMBER = 0
    NAME = 1
    CONSTANT = 2
    ADD = 3
    SUBTRACT = 4
    MULTIPLY = 5
    DIVIDE = 6
    NEGATE = 7
    POWER = 8
    ROOT = 9
    FACTORIAL = 10
    DOUBLE_FACTORIAL = 11
    BINOMIAL = 12
    ABSOLUTE = 13
    CALL = 14
    LOGARITHM = 15  # of its last operand, to the base of the first if there are two


class Step(NamedTuple):
    """An operation; ``argument`` is a name's hash, a root's degree or how many arguments it has."""

    op: Op
    name: int = 0
    argument: int = 0
    number: Fraction = Fraction(0)


# A value as numerator and denominator modulo PRIME; exact values stand beside it.
Ratio: TypeAlias = tuple[int, int]
Exact: TypeAlias = "Fraction | None"


class Side(NamedTuple):
    """One side of an equation.

    Attributes:
        code: its program in postfix order; empty for a side that is no expression.
        exact: of each step, its value if it holds no names and is known exactly.
        names: distinct names in order of appearance.
        occurrences: of all names.
        numbers: how many are written.
        operands: hash of the multiset of their magnitudes, without ones, and of the operations
            that statements do not have; 0 without operands.  Of a point or a choice: of the
            items that do not show their values, 0 if all do.
        is_bare: it is a single name or call of a function, perhaps negative.
        is_closed: it holds neither names nor calls.
        values: at each point.
        items: coordinates of a point, or the two values of ±3.
        is_choice: it has two values.
    """

    code: tuple[Step, ...]
    exact: tuple[Exact, ...]
    names: tuple[int, ...]
    occurrences: int
    numbers: int
    operands: int
    is_bare: bool
    is_closed: bool
    values: tuple[Ratio, ...]
    items: tuple[Side, ...] = ()
    is_choice: bool = False


class UnreadableError(Exception):
    """A side is no expression, or past a limit."""


LETTERS: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
DIGITS: Final = frozenset(b"0123456789")
_ROOTS: Final = {"√".encode(): 2, "∛".encode(): 3, "∜".encode(): 4}
# What C(4,2) has and 4+2 has not.
_OPERATIONS: Final = frozenset(
    (Op.ROOT, Op.FACTORIAL, Op.DOUBLE_FACTORIAL, Op.BINOMIAL, Op.LOGARITHM)
)
_LOGARITHMS: Final = (b"log", b"lg", b"ln")
# What is solved for.
_BARE: Final = (Op.NAME, Op.CALL, Op.ABSOLUTE)
_PI: Final = "π".encode()
_ANGLE: Final = "∠".encode()
_TRIANGLE: Final = "Δ".encode()
_EITHER: Final = "±".encode()
_SYMMETRIC: Final = frozenset(name_hash(name.encode()) for name in SYMMETRIC)
FUNCTION_NAMES: Final = tuple(name.encode() for name in FUNCTIONS)
GREEK: Final = tuple(
    letter.encode() for letter in "αβγδεζηθικλμνξοπρστυφχψωΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩ∞"
)

# How tightly operators bind; an opened bracket binds nothing.
_SUM, _SIGN, _PRODUCT, _ARGUMENT, _FACTOR, _TIGHT_SIGN, _POWER, _PREFIX = range(1, 9)


class _Pending(NamedTuple):
    """An operator, a function or a bracket that waits for what follows."""

    binds: int  # 0 for a bracket
    step: Step | None
    close: int = 0  # byte that ends a bracket
    power: int = 1  # of a function: sin²x
    called: bool = False  # a bracket that holds arguments
    divides: bool = False  # the argument is a fraction: sin x/2
    items: int = 1  # arguments so far


class _Parser:
    """Turns the bytes of a side into postfix order, by operator precedence."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.code: list[Step] = []
        self.pending: list[_Pending] = []
        self.depth = 0
        self.names: dict[int, int] = {}
        self.calls = 0

    def parse(self) -> None:
        """Read all.

        Raises:
            UnreadableError: it is no expression.
        """
        wants_operand = True
        while self.at < len(self.data):
            wants_operand = self._operand() if wants_operand else self._operator()
        if wants_operand:
            raise UnreadableError
        self._reduce(0)
        if self.pending:
            raise UnreadableError

    def _emit(self, step: Step) -> None:
        if len(self.code) == MAX_CODE:
            raise UnreadableError
        self.code.append(step)

    def _push(self, pending: _Pending) -> None:
        if not pending.binds:
            self.depth += 1
        if self.depth > MAX_DEPTH or len(self.pending) == MAX_CODE:
            raise UnreadableError
        self.pending.append(pending)

    def _reduce(self, binds: int) -> None:
        """Emit the operators that bind at least as tightly."""
        while self.pending and self.pending[-1].binds and self.pending[-1].binds >= binds:
            self._finish(self.pending.pop())

    def _finish(self, pending: _Pending) -> None:
        if pending.step is None:
            return
        self._emit(pending.step)
        if pending.power != 1:
            self._emit(Step(Op.NUMBER, number=Fraction(pending.power)))
            self._emit(Step(Op.POWER))

    # What may stand where an operand is expected.

    def _operand(self) -> bool:
        """Read one operand, or what stands before it; return whether one is still expected."""
        data, at = self.data, self.at
        byte = data[at]
        if byte in DIGITS:
            self._number()
            return False
        if byte in LETTERS:
            return self._letters()
        if byte in b"+-":
            self.at += 1
            if byte == ord("-"):
                first = not self.pending or not self.pending[-1].binds
                self._push(_Pending(_SIGN if first else _TIGHT_SIGN, Step(Op.NEGATE)))
            return True
        if byte in b"([":
            if byte == ord("[") and self._named_bracket():
                return False
            self.at += 1
            self._push(_Pending(0, None, ord(")") if byte == ord("(") else ord("]")))
            return True
        if byte == ord("|"):
            if is_segment(data[at + 1 : at + 3]) and data[at + 3 : at + 4] == b"|":
                self.at += 4
                self._name(bytes(sorted(data[at + 1 : at + 3])))
                return False
            self.at += 1
            self._push(_Pending(0, Step(Op.ABSOLUTE), ord("|")))
            return True
        degree = _ROOTS.get(data[at : at + 3])
        if degree:
            self.at += 3
            self._push(_Pending(_PREFIX, Step(Op.ROOT, argument=degree)))
            return True
        if data.startswith(_PI, at):
            self.at += len(_PI)
            self._emit(Step(Op.CONSTANT, name_hash(_PI)))
            return False
        if data.startswith(_ANGLE, at):
            self._angle()
            return False
        if data.startswith(_TRIANGLE, at) and self._letters_from(at + 2) == 3:
            self.at += 2
            return True
        for letter in GREEK:
            if data.startswith(letter, at):
                self.at += len(letter)
                self._name(letter)
                return False
        raise UnreadableError

    def _number(self) -> None:
        start = self.at
        whole = self._digits()
        decimals = b""
        if self._byte() == ord(".") and self._byte(1) in DIGITS:
            self.at += 1
            decimals = self._digits()
            repeated = self._repeated()
            if repeated:
                period = 10 ** len(repeated) - 1
                number = Fraction(int(whole + decimals) * period + int(repeated), period)
                self._emit_number(number / 10 ** len(decimals), start)
                return
        elif self._byte() == ord(".") and self._byte(1) == ord("("):
            self.at += 1
            repeated = self._repeated()
            if not repeated:
                raise UnreadableError
            period = 10 ** len(repeated) - 1
            self._emit_number(Fraction(int(whole) * period + int(repeated), period), start)
            return
        number = Fraction(int(whole + decimals), 10 ** len(decimals))
        top = self._mixed()
        self._emit_number(number, start)
        if top is not None:
            self._emit(Step(Op.NUMBER, number=top))
            self._emit(Step(Op.ADD))

    def _emit_number(self, number: Fraction, start: int) -> None:
        if self.at - start > MAX_DIGITS:
            raise UnreadableError
        self._emit(Step(Op.NUMBER, number=number))

    def _digits(self) -> bytes:
        start = self.at
        while self._byte() in DIGITS:
            self.at += 1
        return self.data[start : self.at]

    def _repeated(self) -> bytes:
        """Read the digits in brackets of 0.1(36), if there are some."""
        start = self.at
        if self._byte() == ord("("):
            self.at += 1
            digits = self._digits()
            if digits and self._byte() == ord(")"):
                self.at += 1
                return digits
        self.at = start
        return b""

    def _mixed(self) -> Fraction | None:
        """Read the fraction of 2 1/2."""
        start = self.at
        if self._byte() == ord(" "):
            self.at += 1
            top = self._digits()
            if top and self._byte() == ord("/"):
                self.at += 1
                bottom = self._digits()
                if bottom and int(bottom) and len(top) <= 3 and len(bottom) <= 3:
                    return Fraction(int(top), int(bottom))
        self.at = start
        return None

    def _byte(self, ahead: int = 0) -> int:
        at = self.at + ahead
        return self.data[at] if at < len(self.data) else 0

    def _letters_from(self, start: int) -> int:
        end = start
        while end < len(self.data) and self.data[end] in LETTERS:
            end += 1
        return end - start

    def _letters(self) -> bool:
        start = self.at
        self.at += self._letters_from(start)
        run = self.data[start : self.at]
        if run == b"m" and self.data.startswith(_ANGLE, self.at):
            return True  # the measure of an angle
        function = function_of(run)
        if function:
            self.at = start + len(function)
            return self._function(function)
        # Of xsiny the x is a factor.
        factors = next((at for at in (1, 2) if function_of(run[at:])), 0)
        if factors and run.decode() not in NO_PRODUCTS:
            run = run[:factors]
            self.at = start + factors
        if is_segment(run):
            self._name(bytes(sorted(run)) + self._suffix())
            return False
        if len(run) >= MIN_WORD:
            if self._byte() == ord("("):
                return self._call(run)
            self._name(run + self._suffix())
            return False
        if run.decode() in NO_PRODUCTS and len(run) > 1:
            if self._byte() == ord("("):
                return self._call(run)
            raise UnreadableError
        if run == b"C" and self._byte() == ord("(") and self._has_two_arguments():
            self.at += 1
            self._push(_Pending(0, Step(Op.BINOMIAL), ord(")"), called=True))
            return True
        if len(run) == 1 and run.decode() in CALLED:
            name = run + self._suffix()
            if self._byte() == ord("("):
                return self._call(name)
            self._name(name)
            return False
        for index in range(len(run)):
            letter = run[index : index + 1]
            if index:
                self._product(simple=True)
            self._name(letter + self._suffix() if index == len(run) - 1 else letter)
        return False

    def _suffix(self) -> bytes:
        """Read what belongs to a name: digits, primes, an index behind ``_``."""
        start = self.at
        while self._byte() in DIGITS:
            self.at += 1
        if self._byte() == ord("_"):
            self.at += 1
            if self._byte() == ord("("):
                self._skip_bracket()
            elif self._byte() in LETTERS:
                # One letter, or a word; of x_ny the y is a factor.
                first = self.at
                while self._byte() in LETTERS:
                    self.at += 1
                if self.at - first < MIN_WORD - 1:
                    self.at = first + 1
            elif self._byte() in DIGITS:
                self._digits()
            elif any(self.data.startswith(letter, self.at) for letter in GREEK):
                self.at += len(self.data[self.at : self.at + 3].decode(errors="ignore")[0].encode())
            else:
                raise UnreadableError
        while self._byte() == ord("'"):
            self.at += 1
        return self.data[start : self.at]

    def _skip_bracket(self) -> None:
        depth = 0
        while self.at < len(self.data):
            byte = self.data[self.at]
            self.at += 1
            depth += (byte == ord("(")) - (byte == ord(")"))
            if depth == 0:
                return
        raise UnreadableError

    def _name(self, name: bytes) -> None:
        hashed = name_hash(name)
        self.names[hashed] = self.names.get(hashed, 0) + 1
        if len(self.names) > MAX_SIDE_NAMES or sum(self.names.values()) > MAX_OCCURRENCES:
            raise UnreadableError
        self._emit(Step(Op.NAME, hashed))

    def _angle(self) -> None:
        """Read an angle: its letters are one name, from either end."""
        self.at += len(_ANGLE)
        start = self.at
        while self._byte() in LETTERS and self.at - start < 3:
            self.at += 1
        letters = self.data[start : self.at]
        if not letters:
            raise UnreadableError
        self._name(_ANGLE + min(letters, letters[::-1]) + self._suffix())

    def _named_bracket(self) -> bool:
        """Read [abc], the area of a polygon, as a name: its letters in any order."""
        start = self.at + 1
        if self.data.startswith(_TRIANGLE, start):
            start += 2
        end = start + self._letters_from(start)
        if end - start < 3 or self.data[end : end + 1] != b"]":
            return False
        self.at = end + 1
        self._name(b"[" + bytes(sorted(self.data[start:end])))
        return True

    def _function(self, function: bytes) -> bool:
        """Read the name of a function, its base and its power: log_2, sin^2."""
        name, power = function, 1
        base: Step | None = None
        if self._byte() == ord("_"):
            start = self.at
            self.at += 1
            if self._byte() == ord("("):
                self._skip_bracket()
            elif self._byte() in DIGITS:
                digits = self._digits()
                if len(digits) <= MAX_DIGITS:
                    base = Step(Op.NUMBER, number=Fraction(int(digits)))
            elif self._byte() in LETTERS:
                self.at += 1
                base = Step(Op.NAME, name_hash(self.data[start + 1 : self.at]))
            else:
                raise UnreadableError
            name += self.data[start : self.at]
        elif function != b"ln":
            base = Step(Op.NUMBER, number=Fraction(10))
        if self._byte() == ord("^"):
            self.at += 1
            digits = self._digits()
            if not 0 < len(digits) <= 2:
                raise UnreadableError
            power = int(digits)
        blank = self._byte() == ord(" ")
        self.at += blank
        divides = blank and name == function  # log_2 8/x is another quotient
        if function in _LOGARITHMS and (base is not None or name == b"ln"):
            if base is not None and base.op is Op.NAME:
                self._name(name[-1:])
            elif base is not None:
                self._emit(base)
            step = Step(Op.LOGARITHM, argument=1 if base is None else 2)
        else:
            self.calls += 1
            step = Step(Op.CALL, name_hash(name), 1)
        if self._byte() == ord("("):
            self.at += 1
            self._push(_Pending(0, step, ord(")"), power, called=True))
        else:
            self._push(_Pending(_ARGUMENT, step, power=power, divides=divides))
        return True

    def _call(self, name: bytes) -> bool:
        self.at += 1
        self.calls += 1
        self._push(_Pending(0, Step(Op.CALL, name_hash(name)), ord(")"), called=True))
        return True

    def _has_two_arguments(self) -> bool:
        depth = commas = 0
        for byte in self.data[self.at :]:
            depth += (byte in b"([") - (byte in b")]")
            commas += byte == ord(",") and depth == 1
            if depth == 0:
                break
        return commas == 1

    # What may stand behind an operand.

    def _operator(self) -> bool:
        """Read what stands behind an operand; return whether another is expected."""
        byte = self._byte()
        if byte in b"+-":
            self._binary(_SUM, Op.ADD if byte == ord("+") else Op.SUBTRACT)
            return True
        if byte == ord("/") and self._divides_argument():
            return True
        if byte in b"*/":
            self._binary(_PRODUCT, Op.MULTIPLY if byte == ord("*") else Op.DIVIDE)
            return True
        if byte == ord("^"):
            self._reduce(_POWER + 1)
            self.at += 1
            self._push(_Pending(_POWER, Step(Op.POWER)))
            return True
        if byte == ord("!"):
            double = self._byte(1) == ord("!")
            self.at += 2 if double else 1
            self._emit(Step(Op.DOUBLE_FACTORIAL if double else Op.FACTORIAL))
            return False
        if byte == ord(","):
            self._reduce(1)
            if not self.pending or not self.pending[-1].called:
                raise UnreadableError
            self.at += 1
            self.pending[-1] = self.pending[-1]._replace(items=self.pending[-1].items + 1)
            return True
        if byte in b")]" or (byte == ord("|") and self._opens_absolute()):
            self._close(byte)
            return False
        if byte == ord(" "):
            self.at += 1
        simple = self._byte() not in b"([|" and not function_of(self.data[self.at :])
        self._product(simple)
        return True

    def _divides_argument(self) -> bool:
        """Read the bar of a fraction that is a function's argument: sin x/2."""
        index = len(self.pending) - 1
        while index >= 0 and self.pending[index].binds > _ARGUMENT:
            index -= 1
        if index < 0 or not self.pending[index].divides:
            return False
        self._reduce(_FACTOR)
        self.pending[-1] = self.pending[-1]._replace(divides=False)
        self.at += 1
        self._push(_Pending(_FACTOR, Step(Op.DIVIDE)))
        return True

    def _binary(self, binds: int, op: Op) -> None:
        self._reduce(binds)
        self.at += 1
        self._push(_Pending(binds, Step(op)))

    def _product(self, simple: bool) -> None:
        """Read a product without a sign; in a function's argument simple factors bind tightly."""
        outer = next(
            (one for one in reversed(self.pending) if one.binds not in (_POWER, _PREFIX, _FACTOR)),
            None,
        )
        tight = simple and outer is not None and outer.binds == _ARGUMENT
        binds = _FACTOR if tight else _PRODUCT
        self._reduce(binds)
        self._push(_Pending(binds, Step(Op.MULTIPLY)))

    def _opens_absolute(self) -> bool:
        brackets = (one for one in reversed(self.pending) if not one.binds)
        return next(brackets, _Pending(0, None)).close == ord("|")

    def _close(self, byte: int) -> None:
        self._reduce(1)
        if not self.pending or self.pending[-1].close != byte:
            raise UnreadableError
        bracket = self.pending.pop()
        self.depth -= 1
        self.at += 1
        step = bracket.step
        if step is not None and step.op is Op.CALL:
            bracket = bracket._replace(step=step._replace(argument=bracket.items))
        elif bracket.items != (2 if step is not None and step.op is Op.BINOMIAL else 1):
            raise UnreadableError
        self._finish(bracket)


def is_segment(run: bytes) -> bool:
    """Tell whether letters name a segment: AB is BA."""
    return len(run) == 2 and run.isalpha() and run.isupper()


def function_of(data: bytes) -> bytes:
    """Return the function that begins here, if the letters behind it can be its argument.

    These are at most two, or reach to another function: sinx, logab, sinxcosx.
    """
    for name in FUNCTION_NAMES:
        if data.startswith(name):
            behind = data[len(name) :]
            letters = next(
                (at for at, byte in enumerate(behind) if byte not in LETTERS), len(behind)
            )
            if letters <= 2 or any(behind.startswith(FUNCTION_NAMES, at) for at in range(3)):
                return name
    return b""


# --- values -------------------------------------------------------------------------------


def _held(number: Fraction) -> Exact:
    """Return a number if it fits 64 bits over 64 bits."""
    return number if abs(number.numerator) <= MAX_INT >= number.denominator else None


def _ratio(number: Fraction) -> Ratio:
    return number.numerator % PRIME, number.denominator % PRIME


def quotient(ratio: Ratio) -> int:
    """Return a ratio as an element of the field."""
    if not ratio[1]:
        raise UnreadableError
    return ratio[0] * pow(ratio[1], -1, PRIME) % PRIME


def _exact_steps(code: Sequence[Step]) -> tuple[Exact, ...]:
    """Return the exact value after each step, None if it is not known.

    Raises:
        UnreadableError: a division by zero, or a root of a negative number.
    """
    stack: list[Exact] = []
    found: list[Exact] = []
    for step in code:
        count = operands_of(step)
        taken = stack[len(stack) - count :]
        del stack[len(stack) - count :]
        stack.append(
            _exact(step, [one for one in taken if one is not None])
            if None not in taken and step.op not in (Op.NAME, Op.CONSTANT, Op.CALL)
            else None
        )
        found.append(stack[-1])
    return tuple(found)


def operands_of(step: Step) -> int:
    if step.op in (Op.CALL, Op.LOGARITHM):
        return step.argument
    if step.op in (Op.NUMBER, Op.NAME, Op.CONSTANT):
        return 0
    binary = (Op.ADD, Op.SUBTRACT, Op.MULTIPLY, Op.DIVIDE, Op.POWER, Op.BINOMIAL)
    return 2 if step.op in binary else 1


def _exact(step: Step, taken: list[Fraction]) -> Exact:
    match step.op:
        case Op.NUMBER:
            return _held(step.number)
        case Op.ADD:
            return _held(taken[0] + taken[1])
        case Op.SUBTRACT:
            return _held(taken[0] - taken[1])
        case Op.MULTIPLY:
            return _held(taken[0] * taken[1])
        case Op.DIVIDE:
            if not taken[1]:
                raise UnreadableError
            return _held(taken[0] / taken[1])
        case Op.NEGATE:
            return -taken[0]
        case Op.ABSOLUTE:
            return abs(taken[0])
        case Op.POWER:
            return _exact_power(taken[0], taken[1])
        case Op.ROOT:
            return _exact_root(taken[0], step.argument)
        case Op.FACTORIAL:
            small = taken[0].denominator == 1 and 0 <= taken[0] <= MAX_EXACT_FACTORIAL
            return Fraction(factorial(int(taken[0]))) if small else None
        case Op.BINOMIAL:
            whole, chosen = taken
            small = whole.denominator == chosen.denominator == 1
            small = small and 0 <= chosen <= whole <= MAX_EXACT_BINOMIAL
            return _held(Fraction(comb(int(whole), int(chosen)))) if small else None
        case _:
            return None


def _exact_power(base: Fraction, exponent: Fraction) -> Exact:
    if exponent.denominator != 1 or abs(exponent) > 63:
        return None
    if not base and exponent <= 0:
        raise UnreadableError
    return _held(base ** int(exponent))


def _exact_root(number: Fraction, degree: int) -> Exact:
    if degree != 2:
        return None
    if number < 0:
        raise UnreadableError
    top, bottom = isqrt(number.numerator), isqrt(number.denominator)
    if top * top == number.numerator and bottom * bottom == number.denominator:
        return Fraction(top, bottom)
    return None


_SQUARE_ROOTS: Final = {prime: pow(prime, (PRIME + 1) // 4, PRIME) for prime in SQUARES}


def _root_of(number: Fraction) -> Ratio:
    """Return the square root of a number above or equal 0: a product of roots of primes."""
    root = 1
    for part in (number.numerator, number.denominator):
        left = part
        for prime in SQUARES:
            while left and left % prime == 0:
                left //= prime
                root = root * _SQUARE_ROOTS[prime] % PRIME
        exact = isqrt(left)
        if exact * exact == left:
            root = root * exact % PRIME
        else:
            root = root * combined(Op.ROOT, (left,)) % PRIME
    return root, number.denominator % PRIME


def evaluate(
    code: Sequence[Step], exact: Sequence[Exact], point: int, slots: Mapping[int, int] | None = None
) -> Ratio:
    """Work a side out modulo PRIME.

    Args:
        code: of the side.
        exact: see :class:`Side`.
        point: from 0 to POINTS - 1.
        slots: what stands for each name, if they are renamed.

    Raises:
        UnreadableError: a division by zero, or a value that takes too long.
    """
    stack: list[Ratio] = []
    # Exact values of what is on the stack, for exponents, roots and factorials.
    known: list[Exact] = []
    for step, value in zip(code, exact, strict=True):
        count = operands_of(step)
        taken, exactly = stack[len(stack) - count :], known[len(known) - count :]
        del stack[len(stack) - count :], known[len(known) - count :]
        if step.op is Op.NAME:
            name = step.name if slots is None else slots[step.name]
            stack.append((point_of(name, point), 1))
        elif step.op is Op.LOGARITHM:
            logs = [_logarithm(*one) for one in zip(taken, exactly, strict=True)]
            stack.append((logs[-1], logs[0] if count == 2 else 1))
        else:
            stack.append(_ratio(value) if value is not None else _step(step, taken, exactly, point))
        known.append(value)
    return stack[-1]


def _logarithm(value: Ratio, exact: Exact) -> int:
    """Return a logarithm to a base of its own: of a number the sum of those of its primes."""
    if exact is None:
        return combined(Op.LOGARITHM, (quotient(value),)) % PRIME
    if exact <= 0:
        raise UnreadableError
    total = 0
    for left, sign in ((exact.numerator, 1), (exact.denominator, -1)):
        for prime in SQUARES:
            while left % prime == 0:
                left //= prime
                total += sign * combined(Op.LOGARITHM, (prime,))
        if left > 1:
            total += sign * combined(Op.LOGARITHM, (left,))
    return total % PRIME


def _step(step: Step, taken: list[Ratio], exact: list[Exact], point: int) -> Ratio:
    match step.op:
        case Op.NUMBER:
            return _ratio(step.number)
        case Op.CONSTANT:
            return element(step.name), 1
        case Op.ADD | Op.SUBTRACT:
            (a, b), (c, d) = taken
            if step.op is Op.SUBTRACT:
                c = -c
            return ((a + c) % PRIME, b) if b == d else ((a * d + c * b) % PRIME, b * d % PRIME)
        case Op.MULTIPLY | Op.DIVIDE:
            (a, b), (c, d) = taken
            if step.op is Op.DIVIDE:
                c, d = d, c
            return a * c % PRIME, b * d % PRIME
        case Op.NEGATE:
            return -taken[0][0] % PRIME, taken[0][1]
        case Op.POWER:
            return _power(taken, exact)
        case Op.ROOT:
            if step.argument == 2 and exact[0] is not None:
                return _root_of(exact[0])
            return combined(Op.ROOT, (step.argument, quotient(taken[0]))) % PRIME, 1
        case Op.FACTORIAL | Op.DOUBLE_FACTORIAL:
            return _factorial(step.op, taken[0], exact[0])
        case Op.BINOMIAL:
            return _binomial(taken, exact)
        case Op.ABSOLUTE:
            value = quotient(taken[0])
            return combined(Op.ABSOLUTE, (min(value, PRIME - value),)) % PRIME, 1
        case Op.CALL:
            # A function is known nowhere, so it takes another value at each point.
            arguments = [quotient(ratio) for ratio in taken]
            if step.name in _SYMMETRIC:
                arguments.sort()
            return combined(step.name, (point, *arguments)) % PRIME, 1
        case _:
            raise AssertionError(step.op)


def _power(taken: list[Ratio], exact: list[Exact]) -> Ratio:
    (top, bottom), exponent = taken[0], exact[1]
    if exponent == Fraction(1, 2):
        if exact[0] is not None and exact[0] >= 0:
            return _root_of(exact[0])
        return combined(Op.ROOT, (2, quotient(taken[0]))) % PRIME, 1
    if exponent is None or exponent.denominator != 1 or abs(exponent) > MAX_POWER:
        return combined(Op.POWER, map(quotient, taken)) % PRIME, 1
    power = int(exponent)
    if power < 0:
        top, bottom, power = bottom, top, -power
    return pow(top, power, PRIME), pow(bottom, power, PRIME)


def _factorial(op: Op, taken: Ratio, exact: Exact) -> Ratio:
    if exact is None or exact.denominator != 1 or not 0 <= exact <= MAX_FACTORIAL:
        return combined(op, (quotient(taken),)) % PRIME, 1
    if op is Op.FACTORIAL:
        return factorial(int(exact)) % PRIME, 1
    value = 1
    for factor in range(int(exact), 1, -2):
        value = value * factor % PRIME
    return value, 1


def _binomial(taken: list[Ratio], exact: list[Exact]) -> Ratio:
    whole, chosen = exact
    if (
        whole is None or chosen is None or whole.denominator != 1 or chosen.denominator != 1
        or not 0 <= chosen <= whole <= MAX_FACTORIAL
    ):  # fmt: skip
        return combined(Op.BINOMIAL, map(quotient, taken)) % PRIME, 1
    return comb(int(whole), int(chosen)) % PRIME, 1


def read_side(data: bytes) -> Side | None:
    """Return a side from the bytes of a normal form, None if it says nothing.

    What is no expression is a name if it is short: ``P(X=2)``, ``A∩B``.
    """
    if not data or len(data) > MAX_SIDE_BYTES:
        return None
    coordinates = _coordinates(data)
    if coordinates:
        return _compound(coordinates, is_choice=False) or _opaque(data)
    if data.count(_EITHER) == 1:
        signs = [data.replace(_EITHER, sign) for sign in (b"+", b"-")]
        return _compound(signs, is_choice=True) or _opaque(data)
    return read_expression(data) or _opaque(data)


def read_expression(data: bytes) -> Side | None:
    """Return a side that is an expression, None if it is none."""
    parser = _Parser(data)
    try:
        parser.parse()
        return _side(parser)
    except UnreadableError:
        return None


def _coordinates(data: bytes) -> list[bytes]:
    """Return the coordinates of a point (2,3), none if the bytes are something else."""
    if data[:1] != b"(" or data[-1:] != b")":
        return []
    depth, start, parts = 0, 1, []
    for at, byte in enumerate(data):
        depth += (byte in b"([") - (byte in b")]")
        if depth == 0 and at < len(data) - 1:
            return []
        if (byte == ord(",") and depth == 1) or depth == 0:
            parts.append(data[start:at])
            start = at + 1
    return parts if 1 < len(parts) <= MAX_COORDINATES else []


def _compound(parts: Sequence[bytes], is_choice: bool) -> Side | None:
    """Return a point from its coordinates, or a choice from its two values."""
    sides = [read_expression(part) for part in parts]
    items = tuple(side for side in sides if side is not None)
    if len(items) < len(sides):
        return None
    values = []
    for point in range(POINTS):
        found = [quotient(item.values[point]) for item in items]
        if is_choice:
            found.sort()
        values.append((combined(Op.CALL, (is_choice, *found)) % PRIME, 1))
    names = tuple(dict.fromkeys(name for item in items for name in item.names))
    if len(names) > MAX_SIDE_NAMES:
        return None
    name = Step(Op.NAME, values[0][0])
    is_closed = all(item.is_closed for item in items)
    operands = unshown_operands(items)
    return Side(
        (name,), (None,), names, 0, 0, operands, False, is_closed, tuple(values), items, is_choice
    )


def unshown_operands(items: Iterable[Side]) -> int:
    """Return the hash of what items are worked out from that do not show their values, or 0."""
    unshown = (item for item in items if item.is_closed and not is_worked_out(item))
    return sum(item.operands + 1 for item in unshown) & 0xFFFFFFFFFFFFFFFF


def is_negative(code: Sequence[Step]) -> bool:
    """Tell whether a program ends with a change of the sign."""
    return code[-1].op is Op.NEGATE


# A mixed number is written with three numbers: 2 1/2.
_MIXED_NUMBER = 3
# How 6*10^3 ends behind its first number.
_SCIENTIFIC: Final = (Op.NUMBER, Op.NUMBER, Op.POWER, Op.MULTIPLY)


def is_worked_out(side: Side) -> bool:
    """Tell whether a closed side shows its value: x = 12/2 does not reach x = 6."""
    if side.items:
        return side.operands == 0
    exact = side.exact[-1]
    if exact is not None and exact.denominator == 1:
        code = side.code[: len(side.code) - is_negative(side.code)]
        return len(code) == 1 or _is_scientific(code)
    return exact is None or side.numbers <= _MIXED_NUMBER


def _is_scientific(code: Sequence[Step]) -> bool:
    """Tell whether a program is a number in scientific notation: 6.5*10^3."""
    return (
        tuple(step.op for step in code[1:]) == _SCIENTIFIC
        and 1 <= code[0].number < code[1].number == 10
    )


def _side(parser: _Parser) -> Side:
    code = tuple(parser.code)
    exact = _exact_steps(code)
    values = tuple(evaluate(code, exact, point) for point in range(POINTS))
    if not all(bottom for _, bottom in values):
        raise UnreadableError
    numbers = [step.number for step in code if step.op is Op.NUMBER]
    operands = [
        combined(Op.NUMBER, (number.numerator, number.denominator))
        for number in numbers
        if number != 1
    ]
    if operands:
        operands += [combined(op, ()) for op in _OPERATIONS & {step.op for step in code}]
    return Side(
        code=code,
        exact=exact,
        names=tuple(parser.names),
        occurrences=sum(parser.names.values()),
        numbers=len(numbers),
        operands=sum(operands) & 0xFFFFFFFFFFFFFFFF,
        is_bare=code[-1 - is_negative(code)].op in _BARE and exact[-1] is None,
        is_closed=not parser.names and not parser.calls,
        values=values,
    )


def _opaque(data: bytes) -> Side | None:
    if len(data) > MAX_OPAQUE or not any(byte in LETTERS or byte >= 0x80 for byte in data):
        return None
    name = name_hash(data)
    return Side(
        (Step(Op.NAME, name),), (None,), (name,), 1, 0, 0, True, False,
        tuple((point_of(name, point), 1) for point in range(POINTS)),
    )  # fmt: skip
