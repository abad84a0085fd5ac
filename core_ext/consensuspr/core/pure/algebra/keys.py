"""Keys of equations, from two sides: equal ones have equal keys, whatever they look like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Final, NamedTuple

from consensuspr.core.algebra import (
    MANY_RESIDUES,
    MAX_RENAMED,
    MAX_SIDE_NAMES,
    POINTS,
    PRIME,
    RESIDUES,
    SHAPE_POINTS,
    SMALL_MODULUS,
    FactKind,
    combined,
    element,
    name_hash,
    point_of,
)
from consensuspr.core.pure.algebra.sides import (
    Exact,
    Op,
    Ratio,
    Side,
    UnreadableError,
    evaluate,
    is_negative,
    is_worked_out,
    operands_of,
    quotient,
)

_PI: Final = element(name_hash("π".encode()))


class KeyedEquation(NamedTuple):
    """Two sides and the hashes by which they reach a node; the first stands for the equation.

    Attributes:
        kind: of :class:`~consensuspr.core.algebra.FactKind`.
        keys: one or two.
        left: first side.
        right: second side.
    """

    kind: FactKind
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


def equation_of(left: Side, right: Side) -> KeyedEquation | None:
    """Return the equation of two sides; None if it says nothing."""
    if left.is_closed and right.is_closed:
        return _closed(left, right)
    names = dict.fromkeys(left.names + right.names)
    if len(names) > MAX_SIDE_NAMES:
        return None
    for name, value in ((left, right), (right, left)):
        if name.is_bare and (value.is_closed or value.items):
            return _solved(name, value)
    tops, bottoms = _differences(left.values, right.values)
    kind = FactKind.EQUATION
    if not any(tops):
        return _identity(left, right)
    if len(names) == 1 and _is_linear(tops, next(iter(names))):
        kind = FactKind.LINEAR
        # 35 = 35x is more often a unit than an equation.
        if _has_trivial_root(tops, next(iter(names))):
            return None
    keys = [_normed(tops)]
    if len(set(bottoms)) > 1:
        keys.append(
            _normed([a * pow(b, -1, PRIME) % PRIME for a, b in zip(tops, bottoms, strict=True)])
        )
    # A difference that is a number is never 0, like that of x = x + 1, and says nothing.
    hashed = tuple(combined(kind, key) for key in keys if key is not None and {*key} != {1})
    return KeyedEquation(kind, hashed, left, right) if hashed else None


def _identity(left: Side, right: Side) -> KeyedEquation | None:
    """Return an equation that always holds: its sides as they are written, in any order."""
    sides = sorted(_steps_hash(side) for side in (left, right))
    if sides[0] == sides[1]:
        return None
    key = combined(FactKind.IDENTITY, sides)
    return KeyedEquation(FactKind.IDENTITY, (key,), left, right)


def _steps_hash(side: Side) -> int:
    """Return the hash of the multiset of a side's steps."""
    hashes = (combined(step.op, (step.name, *step.number.as_integer_ratio())) for step in side.code)
    return sum(hashes) & 0xFFFFFFFFFFFFFFFF


def _solved(name: Side, value: Side) -> KeyedEquation:
    """Return name = value; with the key of the value second where it is not worked out."""
    if value.is_choice:
        kind = FactKind.VALUES
        key = values_key([solved_key(name, item) for item in value.items])
    else:
        kind = FactKind.SOLVED
        key = solved_key(name, value)
    keys = (key,) if is_worked_out(value) else unshown_keys(kind, key, value.operands)
    return KeyedEquation(kind, keys, name, value)


def unshown_keys(kind: FactKind, key: int, operands: int) -> tuple[int, int]:
    """Return the keys of what shows no value: its own, and that of the value."""
    return combined(kind, (key, operands)), key


def solved_key(name: Side, value: Side) -> int:
    """Return the key of name = value; -x = 3 is x = -3."""
    negative = is_negative(name.code)
    names = [quotient(ratio) for ratio in name.values]
    if negative:
        names = [-one % PRIME for one in names]
    return combined(FactKind.SOLVED, (*names, _value_hash(value, negative)))


def values_key(keys: Sequence[int]) -> int:
    """Return the key of equations that stand together, in any order."""
    return combined(FactKind.JOINED, (len(keys), sum(keys) & 0xFFFFFFFFFFFFFFFF))


def _value_hash(side: Side, negative: bool = False) -> int:
    """Return the hash of a closed side's value, or of the negative one."""
    sign = -1 if negative else 1
    exact = side.exact[-1]
    if exact is None:
        return combined(Op.CONSTANT, (sign * quotient(side.values[0]) % PRIME,))
    return combined(Op.NUMBER, (sign * exact.numerator % PRIME, exact.denominator))


def _has_trivial_root(values: Sequence[int], name: int) -> bool:
    """Tell whether a linear equation is solved by 0 or 1."""
    x = [point_of(name, point) for point in range(2)]
    return any(
        (values[0] * (x[1] - root) - values[1] * (x[0] - root)) % PRIME == 0 for root in (0, 1)
    )


def _is_linear(values: Sequence[int], name: int) -> bool:
    """Tell whether values lie on a line over those of a name."""
    x = [point_of(name, point) for point in range(POINTS)]
    first = (values[1] - values[0]) * (x[2] - x[0])
    return (first - (values[2] - values[0]) * (x[1] - x[0])) % PRIME == 0


def _closed(left: Side, right: Side) -> KeyedEquation | None:
    """Return arithmetic without names, by value and operands of what is worked out."""
    if not are_equal(left, right):
        return None
    keys = tuple(
        combined(FactKind.CLOSED, (_value_hash(side), side.operands))
        for side, other in ((left, right), (right, left))
        # A fraction is a value, unless both sides are one.
        if len(side.code) > 1 and side.operands and _is_fraction(side) <= _is_fraction(other)
    )
    return KeyedEquation(FactKind.CLOSED, keys, left, right) if keys else None


def _is_fraction(side: Side) -> bool:
    """Tell whether a closed side is a fraction of two numbers, and no whole number."""
    exact = side.exact[-1]
    ops = [step.op for step in side.code[:3]]
    return (
        ops == [Op.NUMBER, Op.NUMBER, Op.DIVIDE]
        and len(side.code) - is_negative(side.code) == len(ops)
        and exact is not None
        and exact.denominator > 1
    )


def are_equal(left: Side, right: Side) -> bool:
    """Tell whether two closed sides have one value, or are an angle in radians and in degrees."""
    (a, b), (c, d) = left.values[0], right.values[0]
    one, other = a * d, c * b
    return any(
        (p - q) % PRIME == 0
        for p, q in ((one, other), (180 * one, _PI * other), (_PI * one, 180 * other))
    )


def order_of(left: Side, right: Side, kind: FactKind) -> int:
    """Return the key of left < right or left ≤ right."""
    tops, bottoms = _differences(left.values, right.values)
    values = [a * pow(b, -1, PRIME) % PRIME for a, b in zip(tops, bottoms, strict=True)]
    return combined(kind, values)


def congruence_of(left: Side, right: Side, modulus: int | Side) -> int:
    """Return the key of left ≡ right (mod modulus), 0 if there is none.

    That is its residues at fixed integers, up to the sign; without names, both values; modulo a
    name, the difference up to the sign.
    """
    if isinstance(modulus, Side):
        tops, bottoms = _differences(left.values, right.values)
        values = [a * pow(b, -1, PRIME) % PRIME for a, b in zip(tops, bottoms, strict=True)]
        if 2 * values[0] > PRIME:
            values = [-value % PRIME for value in values]
        key = combined(FactKind.CONGRUENCE, (*map(quotient, modulus.values), *values))
        return key if values[0] else 0
    if left.is_closed and right.is_closed:
        values = sorted((_value_hash(left), _value_hash(right)))
        return combined(FactKind.CONGRUENCE, (modulus, *values))
    try:
        residues = [
            (_residue(left, modulus, at) - _residue(right, modulus, at)) % modulus
            for at in range(RESIDUES if modulus >= SMALL_MODULUS else MANY_RESIDUES)
        ]
    except UnreadableError:
        return 0
    negative = [-residue % modulus for residue in residues]
    return combined(FactKind.CONGRUENCE, (modulus, *min(residues, negative)))


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


def size_of(equation: KeyedEquation) -> int:
    """Return how large an equation is: occurrences of names, and numbers."""
    left, right = equation.left, equation.right
    return left.occurrences + right.occurrences + left.numbers + right.numbers


def can_be_renamed(equation: KeyedEquation) -> bool:
    """Tell whether an equation has a key whatever its names are."""
    names = {*equation.left.names, *equation.right.names}
    return (
        equation.kind in (FactKind.EQUATION, FactKind.LINEAR)
        and 0 < len(names) <= MAX_RENAMED
        and not (equation.left.items or equation.right.items)
    )


def shape_of(equation: KeyedEquation) -> int:
    """Return what equations share that differ in names: the quotient at two points.

    All names are the same there.  Three bits above it are kind and number of names; PRIME stands
    for no quotient.
    """
    names = {*equation.left.names, *equation.right.names}
    found = _renamed(equation, dict.fromkeys(names, 0), SHAPE_POINTS)
    tag = 4 * (equation.kind is FactKind.LINEAR) + len(names) - 1
    return tag << 61 | (PRIME if found is None else found[0])


def renamed_key(equation: KeyedEquation) -> int:
    """Return the smallest key of an equation over all ways to name what it names, 0 for none."""
    names = [*dict.fromkeys(equation.left.names + equation.right.names)]
    found = (
        _renamed(equation, dict(zip(names, order, strict=True)), POINTS)
        for order in permutations(range(1, len(names) + 1))
    )
    start = equation.kind, len(names)
    return min(
        (combined(FactKind.RENAMED, start + values) for values in found if values), default=0
    )


def _renamed(
    equation: KeyedEquation, slots: Mapping[int, int], points: int
) -> tuple[int, ...] | None:
    """Return the values of an equation with other names up to a factor, None if it has none."""
    try:
        left, right = (
            [evaluate(side.code, side.exact, point, slots) for point in range(points)]
            for side in (equation.left, equation.right)
        )
    except UnreadableError:
        return None
    return _normed(_differences(left, right)[0])
