"""Keys of equations, from two sides: equal ones have equal keys, whatever they look like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import NamedTuple

from consensuspr.core.algebra import (
    MAX_RENAMED,
    MAX_SIDE_NAMES,
    POINTS,
    PRIME,
    RESIDUES,
    SHAPE_POINTS,
    Kind,
    combined,
    point_of,
)
from consensuspr.core.pure.algebra.sides import (
    Exact,
    Op,
    Ratio,
    Side,
    UnreadableError,
    evaluate,
    operands_of,
    quotient,
)


class Equation(NamedTuple):
    """Two sides and the hashes by which they reach a node; the first stands for the equation.

    Attributes:
        kind: of :class:`~consensuspr.core.algebra.Kind`.
        keys: one or two.
        left: first side.
        right: second side.
    """

    kind: Kind
    keys: tuple[int, ...]
    left: Side
    right: Side


def _normed(values: Sequence[int]) -> tuple[int, ...] | None:
    """Return values up to a factor; None if the first is 0."""
    if not values[0]:
        return None
    inverse = pow(values[0], -1, PRIME)
    return tuple(value * inverse % PRIME for value in values[1:])


def _differences(left: Sequence[Ratio], right: Sequence[Ratio]) -> tuple[list[int], list[int]]:
    """Return numerators and denominators of left - right at each point."""
    tops = [(a * d - c * b) % PRIME for (a, b), (c, d) in zip(left, right, strict=True)]
    return tops, [b * d % PRIME for (_, b), (_, d) in zip(left, right, strict=True)]


def equation_of(left: Side, right: Side) -> Equation | None:
    """Return the equation of two sides; None if it says nothing."""
    if left.is_closed and right.is_closed:
        return _closed(left, right)
    names = dict.fromkeys(left.names + right.names)
    if len(names) > MAX_SIDE_NAMES:
        return None
    if left.is_bare and right.is_closed:
        return _solved(left, right)
    if right.is_bare and left.is_closed:
        return _solved(right, left)
    tops, bottoms = _differences(left.values, right.values)
    kind = Kind.EQUATION
    if len(names) == 1 and _is_linear(tops, next(iter(names))):
        kind = Kind.LINEAR
    keys = [_normed(tops)]
    if len(set(bottoms)) > 1:
        keys.append(
            _normed([a * pow(b, -1, PRIME) % PRIME for a, b in zip(tops, bottoms, strict=True)])
        )
    hashed = tuple(combined(kind, key) for key in keys if key is not None)
    return Equation(kind, hashed, left, right) if hashed else None


def _solved(name: Side, value: Side) -> Equation:
    """Return name = value."""
    key = combined(Kind.SOLVED, (*map(quotient, name.values), _value_hash(value)))
    return Equation(Kind.SOLVED, (key,), name, value)


def _value_hash(side: Side) -> int:
    """Return the hash of a closed side's value."""
    exact = side.exact[-1]
    if exact is None:
        return combined(Op.CONSTANT, (quotient(side.values[0]),))
    return combined(Op.NUMBER, (exact.numerator % PRIME, exact.denominator))


def _is_linear(values: Sequence[int], name: int) -> bool:
    """Tell whether values lie on a line over those of a name."""
    x = [point_of(name, point) for point in range(POINTS)]
    first = (values[1] - values[0]) * (x[2] - x[0])
    return (first - (values[2] - values[0]) * (x[1] - x[0])) % PRIME == 0


def _closed(left: Side, right: Side) -> Equation | None:
    """Return arithmetic without names, by value and operands of what is worked out."""
    if not are_equal(left, right):
        return None
    keys = tuple(
        combined(Kind.CLOSED, (_value_hash(side), side.operands))
        for side in (left, right)
        if len(side.code) > 1 and side.operands
    )
    return Equation(Kind.CLOSED, keys, left, right) if keys else None


def are_equal(left: Side, right: Side) -> bool:
    """Tell whether two closed sides have one value."""
    (a, b), (c, d) = left.values[0], right.values[0]
    return (a * d - c * b) % PRIME == 0


def order_of(left: Side, right: Side, kind: Kind) -> int:
    """Return the key of left < right or left ≤ right."""
    tops, bottoms = _differences(left.values, right.values)
    values = [a * pow(b, -1, PRIME) % PRIME for a, b in zip(tops, bottoms, strict=True)]
    return combined(kind, values)


def congruence_of(left: Side, right: Side, modulus: int) -> int:
    """Return the key of left ≡ right (mod modulus), 0 if there is none.

    That is its residues at fixed integers, up to the sign; without names, both values.
    """
    if left.is_closed and right.is_closed:
        values = sorted((_value_hash(left), _value_hash(right)))
        return combined(Kind.CONGRUENCE, (modulus, *values))
    try:
        residues = [
            (_residue(left, modulus, at) - _residue(right, modulus, at)) % modulus
            for at in range(RESIDUES)
        ]
    except UnreadableError:
        return 0
    negative = [-residue % modulus for residue in residues]
    return combined(Kind.CONGRUENCE, (modulus, *min(residues, negative)))


def _residue(side: Side, modulus: int, at: int) -> int:
    """Return a side modulo a number, with integers for its names.

    Raises:
        UnreadableError: it holds something else than sums, products and powers of integers.
    """
    stack: list[int] = []
    known: list[Exact] = []
    for step, exact in zip(side.code, side.exact, strict=True):
        count = operands_of(step)
        taken, exactly = stack[len(stack) - count :], known[len(known) - count :]
        del stack[len(stack) - count :], known[len(known) - count :]
        known.append(exact)
        if exact is not None:
            if exact.denominator != 1:
                stack.append(0)  # of no use, unless what is done with it is whole again
            else:
                stack.append(int(exact) % modulus)
            continue
        if any(one is not None and one.denominator != 1 for one in exactly):
            raise UnreadableError
        match step.op:
            case Op.NAME:
                stack.append(point_of(step.name, POINTS + at) % modulus)
            case Op.NUMBER if step.number.denominator == 1:
                stack.append(int(step.number) % modulus)
            case Op.ADD:
                stack.append((taken[0] + taken[1]) % modulus)
            case Op.SUBTRACT:
                stack.append((taken[0] - taken[1]) % modulus)
            case Op.MULTIPLY:
                stack.append(taken[0] * taken[1] % modulus)
            case Op.NEGATE:
                stack.append(-taken[0] % modulus)
            case Op.POWER if exactly[1] is not None and exactly[1] >= 0:
                stack.append(pow(taken[0], int(exactly[1]), modulus))
            case _:
                raise UnreadableError
    if side.exact[-1] is not None and side.exact[-1].denominator != 1:
        raise UnreadableError
    return stack[-1]


def size_of(equation: Equation) -> int:
    """Return how large an equation is: occurrences of names, and numbers."""
    left, right = equation.left, equation.right
    return left.occurrences + right.occurrences + left.numbers + right.numbers


def can_be_renamed(equation: Equation) -> bool:
    """Tell whether an equation has a key whatever its names are."""
    names = {*equation.left.names, *equation.right.names}
    return equation.kind in (Kind.EQUATION, Kind.LINEAR) and 0 < len(names) <= MAX_RENAMED


def shape_of(equation: Equation) -> int:
    """Return a hash that equations share that differ in names: all names are the same."""
    names = {*equation.left.names, *equation.right.names}
    key = _renamed(equation, dict.fromkeys(names, 0), SHAPE_POINTS)
    return key or combined(Kind.RENAMED, (equation.kind, len(names)))


def renamed_key(equation: Equation) -> int:
    """Return the smallest key of an equation over all ways to name what it names, 0 for none."""
    names = [*dict.fromkeys(equation.left.names + equation.right.names)]
    keys = (
        _renamed(equation, dict(zip(names, order, strict=True)))
        for order in permutations(range(1, len(names) + 1))
    )
    return min(filter(None, keys), default=0)


def _renamed(equation: Equation, slots: Mapping[int, int], points: int = POINTS) -> int:
    """Return the key of an equation with other names, 0 if it has none."""
    try:
        left, right = (
            [evaluate(side.code, side.exact, point, slots) for point in range(points)]
            for side in (equation.left, equation.right)
        )
    except UnreadableError:
        return 0
    key = _normed(_differences(left, right)[0])
    return combined(Kind.RENAMED, (equation.kind, len(slots), *key)) if key else 0
