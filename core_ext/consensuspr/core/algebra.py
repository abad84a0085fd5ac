"""What the equation channel reads: limits, names, hashes; shared by both engines.

An *equation* is two sides joined by a sign of equality, at least one of which holds a name
(``docs/concepts/statements.md``).  It reaches a node by its *key*: the difference of its sides,
evaluated at three fixed points modulo a prime, up to a factor.  Two equations that are equal up to
a factor have the same key; two that are not have one only if a polynomial vanishes at a random
point of a field of 2⁶¹ elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum, IntFlag
from typing import Final, NamedTuple

from consensuspr.core.patterns import Edge, Pattern
from consensuspr.core.statements import mixed

# The largest prime below 2⁶¹ of the form 8 k + 7 that all primes up to 47 are squares for: their
# roots are numbers, so that √12 = 2 √3 and √2 √3 = √6 hold without a rule.
PRIME: Final = (1 << 61) - 636873
SQUARES: Final = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)
# Points at which sides are evaluated, and integers at which congruences are.
POINTS: Final = 3
SHAPE_POINTS: Final = 2
RESIDUES: Final = 16
# So many, where few residues differ: below a modulus of 8.
MANY_RESIDUES: Final = 40
SMALL_MODULUS: Final = 8

# --- limits -------------------------------------------------------------------------------

# Bytes without a blank; longer ones say nothing.
MAX_TOKEN: Final = 4096
# Bytes of one side, and of one that is no expression and counts as a name: P(X=2).
MAX_SIDE_BYTES: Final = 120
MAX_OPAQUE: Final = 64
# Operations and operands of one side, brackets inside one another, names and how often they occur.
MAX_CODE: Final = 96
MAX_DEPTH: Final = 24
MAX_SIDE_NAMES: Final = 8
MAX_OCCURRENCES: Final = 24
# Sides of one chain; how many of them an equation may span: a = … = b.
MAX_CHAIN: Final = 16
MAX_SPAN: Final = 6
# Exponents that are carried out; factorials and binomials up to it.
MAX_POWER: Final = 300
MAX_FACTORIAL: Final = 1000
# Up to which they are known exactly, so that they can be exponents and the like.
MAX_EXACT_FACTORIAL: Final = 20
MAX_EXACT_BINOMIAL: Final = 60
MAX_MODULUS: Final = 1_000_000
# Names that are renamed, and how large an equation has to be: occurrences of names and numbers.
MAX_RENAMED: Final = 4
MIN_RENAMED_SIZE: Final = 6
# Items of a list, and equations that are joined.
MIN_LIST: Final = 3
MAX_LIST: Final = 40
MAX_JOINED: Final = 3
# Coordinates of a point.
MAX_COORDINATES: Final = 8


class FactKind(IntEnum):
    """What a key is of; part of its hash."""

    EQUATION = 1
    LINEAR = 2  # in one name, which is not solved for
    SOLVED = 3  # name = value
    CLOSED = 4  # arithmetic without names that the statement channel does not read
    ORDER = 5  # a < b
    ORDER_OR_EQUAL = 6
    CONGRUENCE = 7
    LIST = 8
    JOINED = 9  # x = 2 and y = 3, a < b < c
    RENAMED = 10  # of one of the first two
    VALUES = 11  # of a name: x = 2, 3; the key is that of x = 2 and x = 3
    IDENTITY = 12  # an equation that always holds


class FactGroup(IntFlag):
    """What a matcher looks for and the guard counts; only that is worked out."""

    NAMED = 1
    CLOSED = 2
    ORDER = 4
    CONGRUENCE = 8
    LIST = 16
    JOINED = 32
    RENAMED = 64
    IDENTITY = 128


# What can stand together with others: where one is joined, all are.
_PARTS: Final = FactGroup.NAMED | FactGroup.CLOSED | FactGroup.ORDER | FactGroup.CONGRUENCE
GROUPS: Final = {
    FactKind.EQUATION: FactGroup.NAMED,
    FactKind.LINEAR: FactGroup.NAMED,
    FactKind.SOLVED: FactGroup.NAMED,
    FactKind.CLOSED: FactGroup.CLOSED,
    FactKind.ORDER: FactGroup.ORDER,
    FactKind.ORDER_OR_EQUAL: FactGroup.ORDER,
    FactKind.CONGRUENCE: FactGroup.CONGRUENCE,
    FactKind.LIST: FactGroup.LIST,
    FactKind.JOINED: _PARTS | FactGroup.JOINED,
    FactKind.RENAMED: FactGroup.NAMED | FactGroup.RENAMED,
    FactKind.VALUES: _PARTS | FactGroup.JOINED,
    FactKind.IDENTITY: FactGroup.NAMED | FactGroup.IDENTITY,
}
# These are read only if their own group is wanted.
OWN_GROUPS: Final = GROUPS | {
    FactKind.JOINED: FactGroup.JOINED,
    FactKind.VALUES: FactGroup.JOINED,
    FactKind.IDENTITY: FactGroup.IDENTITY,
}

# The second key of these is that of their value. It reaches a node, but in a text it reaches none.
VALUED: Final = (FactKind.SOLVED, FactKind.LIST, FactKind.JOINED, FactKind.VALUES)

# So many distinct keys count as one equation: a chain says a few things at once, and honest
# solutions write most of their equations in several ways.
KEYS_AN_EQUATION: Final = 3

# Names of functions; an argument of letters and digits needs no bracket.
FUNCTIONS: Final = (
    "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "sin", "cos", "tan", "cot", "sec", "csc",
    "log", "ln", "lg", "exp",
)  # fmt: skip
# Functions of a set: the order of their arguments is of no matter.
SYMMETRIC: Final = ("gcd", "lcm", "max", "min")
# Single letters that are called where a bracket follows: f(x), P(A).
CALLED: Final = "fghEFGHPQT"
# Words from so many letters on are one name; shorter ones are products.
MIN_WORD: Final = 4
# Short words that are no products.
NO_PRODUCTS: Final = frozenset(
    "mod and the if for gcd lcm is or max min of to in so we be as at by lim det deg arg sup inf "
    "but not all are has let pi".split()
)


def name_hash(name: bytes) -> int:
    """Return the hash of a name: FNV-1a over its bytes."""
    value = 0xCBF29CE484222325
    for byte in name:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def element(value: int) -> int:
    """Return a pseudo-random element of the field, never 0."""
    return (mixed(value) >> 4) + 1


def point_of(name: int, point: int) -> int:
    """Return what a name is at a point, from its hash."""
    return element(name + (point + 1) * 0x9E3779B97F4A7C15)


def combined(kind: int, values: Iterable[int]) -> int:
    """Return the hash of values in their order; never 0."""
    key = mixed(kind)
    for value in values:
        key = mixed(key ^ value)
    return key or 1


# --- facts ----------------------------------------------------------------------------------


class Fact(NamedTuple):
    """What a normal form says that can reach a node.

    Attributes:
        kind: of it.
        keys: one or two hashes by which it reaches a node; both together stand for it in counts.
        start: first byte in the normal form.
        end: byte behind its last one.
        spans: it is a whole chain, from the first side to the last, or all that stands together.
        size: of an equation that can be renamed: occurrences of names, and numbers; else 0.
        names: of such an equation, how many it has; else 0.
        shape: of such an equation, equal for all that differ in names alone; else 0.
        renamed: of such an equation, its key whatever the names are; else 0.
    """

    kind: FactKind
    keys: tuple[int, ...]
    start: int
    end: int
    spans: bool
    size: int = 0
    names: int = 0
    shape: int = 0
    renamed: int = 0


class FactRun(NamedTuple):
    """What stands together, such as ``x = 2, y = 3 and z = 4``.

    Attributes:
        facts: all of it; what is joined and lists come last.
        start: first byte.
        end: byte behind the last one.
        parts: chains of equations, and pairs of other relations.
        items: of a list.
    """

    facts: list[Fact]
    start: int
    end: int
    parts: int
    items: int


def facts_of_node(form: bytes, runs: Sequence[FactRun]) -> list[Fact]:
    """Return the facts that reach a node, from what its expression says.

    That is the expression as a whole: a chain from its first side to its last, all that stands
    together, or a list.  One word behind it is a unit.

    Args:
        form: normal form of the expression.
        runs: what it says.
    """
    if len(runs) != 1 or runs[0].start:
        return []
    run = runs[0]
    unit = form[run.end :].strip(b" .,")
    if unit and not (len(unit) > 1 and unit.isalpha()):
        return []
    if run.items and run.parts:
        return []
    if run.parts > 1:
        joined = [fact for fact in run.facts if fact.kind is FactKind.JOINED]
        return joined[-1:] if run.parts <= MAX_JOINED else []
    return [fact for fact in run.facts if fact.spans]


class EquationKey(NamedTuple):
    """A key of a node.

    Attributes:
        key: the hash.
        node: index of the node.
        expression: what it was made of.
        kind: of the fact.
        shape: of a key whatever the names are; 0 for all others.
        names: that such a key has.
    """

    key: int
    node: int
    expression: str
    kind: FactKind
    shape: int = 0
    names: int = 0


def groups_of(keys: Iterable[EquationKey]) -> FactGroup:
    """Return what has to be read to find keys."""
    wanted = FactGroup(0)
    for key in keys:
        wanted |= GROUPS[key.kind]
    return wanted


def mark_lists(patterns: Iterable[Pattern], keys: Iterable[EquationKey]) -> list[Pattern]:
    """Mark the patterns of lists: with keys a list is found whole, whatever its order is."""
    kinds = FactKind.LIST, FactKind.VALUES
    lists = {(key.node, key.expression) for key in keys if key.kind in kinds}
    return [
        pattern._replace(edges=pattern.edges | Edge.LIST)
        if (pattern.node, pattern.expression) in lists
        else pattern
        for pattern in patterns
    ]


def equation_keys(
    nodes: Sequence[Sequence[str]],
    read: Callable[[str], tuple[bytes, list[FactRun]]],
    has_statement: Callable[[str], object],
    given: str,
    rare: frozenset[str],
) -> list[EquationKey]:
    """Return the keys by which equations reach nodes.

    Args:
        nodes: expressions of each node.
        read: returns the normal form of a text, and what it says.
        has_statement: whether the statement channel has a key of an expression; then it has none
            here.
        given: text of the problem, whose own equations reach no node.
        rare: expressions that are rare whatever the names in them are, so that they may have
            others though they are short.
    """
    known: set[int] = set()
    if given:
        for run in read(given)[1]:
            for fact in run.facts:
                known.update(fact.keys, [fact.renamed])
    keys: dict[EquationKey, None] = {}
    for node, expressions in enumerate(nodes):
        for text in expressions:
            if has_statement(text):
                continue
            for fact in facts_of_node(*read(text)):
                for hashed in fact.keys:
                    if hashed not in known:
                        keys[EquationKey(hashed, node, text, fact.kind)] = None
                large = fact.size >= MIN_RENAMED_SIZE
                if fact.renamed and fact.renamed not in known and (large or text in rare):
                    key = EquationKey(
                        fact.renamed, node, text, FactKind.RENAMED, fact.shape, fact.names
                    )
                    keys[key] = None
    return list(keys)
