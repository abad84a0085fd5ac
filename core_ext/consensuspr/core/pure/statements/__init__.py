"""The statement reader of the pure-Python engine: true arithmetic in prose, LaTeX and code.

A text is split into prose and code.  Prose becomes tokens (``prose``), tokens become items
(``folding``), and around each sign of equality the longest expressions are worked out and
compared (``arithmetic``, ``equations``); code is read line by line with a table of names
(``code``), its comments and strings as prose.  The compiled reader does the same, rule for rule;
what a statement is stands in ``docs/concepts/statements.md``, and words and limits in
:mod:`consensuspr.core.statements`.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from consensuspr.core.algebra import KEYS_AN_EQUATION, Fact
from consensuspr.core.patterns import Magnitude, encode
from consensuspr.core.pure.characters import canonical_characters
from consensuspr.core.pure.statements.code import Program, split_code
from consensuspr.core.pure.statements.equations import Equations, StatementLog
from consensuspr.core.pure.statements.folding import fold
from consensuspr.core.pure.statements.numbers import written_numbers
from consensuspr.core.pure.statements.prose import read_stretches
from consensuspr.core.statements import EQUATIONS_A_VALUE, Key, TrueStatement

__all__ = ["StatedText", "expression_keys", "expression_statements", "read_statements"]


class StatedText(NamedTuple):
    """What a text states, and what the guard counts in it.

    Attributes:
        statements: in the order in which they were read, places in bytes.
        values: distinct values of all statements.
        numbers: distinct magnitudes of all numbers written.
        equations: distinct keys of all statements.
        results: values of numbers that can be a result of code, and before which byte that ends.
        said: keys of what its equations say.
    """

    statements: list[TrueStatement]
    values: set[Fraction]
    numbers: set[Magnitude]
    equations: set[Key]
    results: list[tuple[Fraction, float]]
    said: set[int]

    @property
    def num_values(self) -> int:
        """What the guard counts of the values: see ``EQUATIONS_A_VALUE``."""
        return max(len(self.values), -(-len(self.equations) // EQUATIONS_A_VALUE))

    @property
    def num_equations(self) -> int:
        """What the guard counts of the equations: see ``KEYS_AN_EQUATION``."""
        return -(-len(self.said) // KEYS_AN_EQUATION)

    def take(self, fact: Fact) -> bool:
        """Count what an equation says; return whether it had not been said before."""
        known = len(self.said)
        self.said.add(sum(fact.keys) & 0xFFFFFFFFFFFFFFFF)
        return len(self.said) > known

    def count_too(self, text: str | bytes) -> None:
        """Count what another form of the text states, too."""
        more = read_statements(text)
        self.values.update(more.values)
        self.numbers.update(more.numbers)
        self.equations.update(more.equations)


def read_statements(text: str | bytes) -> StatedText:
    """Return all true statements of a text, and what the guard counts in it."""
    chars, offsets = canonical_characters(encode(text))
    log = StatementLog()
    equations = Equations(log)

    def read_prose(start: int, end: int) -> None:
        for number in written_numbers(chars, start, end):
            log.count(number, math.inf)
        for tokens in read_stretches(chars, start, end):
            equations.read(fold(tokens))

    program = Program(chars, log, read_prose)
    for start, end, is_code in split_code(chars):
        read = program.read if is_code else read_prose
        read(start, end)
    log.find_results()
    return StatedText(
        [one._replace(start=offsets[one.start], end=offsets[one.end]) for one in log.statements],
        {Fraction(*one.key.value) for one in log.statements},
        log.numbers,
        {one.key for one in log.statements},
        [
            (Fraction(number.magnitude), at if at == math.inf else offsets[int(at)])
            for number, at in log.results.items()
            if not isinstance(number.magnitude, str)
        ],
        set(),
    )


def expression_keys(text: str) -> list[Key]:
    """Return the keys of a node's expression: of its true equations with an operation.

    An equation whose operands are all ones has none, for it would be reached by any other.
    """
    return [key for key, _ in expression_statements(text) if key is not None]


def expression_statements(text: str) -> list[tuple[Key | None, Fraction]]:
    """Return (key, value) of an expression's true equations with an operation."""
    return [
        (one.key if one.key.operands else None, Fraction(*one.key.value))
        for one in read_statements(text).statements
        if one.whole
    ]
