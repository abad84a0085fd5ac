"""The guard: what a response may state before its NCR falls.

A deviation from the paper, whose NCR (equation 1) can be earned without solving anything: a text
that lists all sums, products and quotients of the problem's numbers states the nodes' equations
among hundreds of others.  So NCR is multiplied by

    min(1, S / s) * min(1, M / m) * min(1, E / e)

where *s* counts the distinct values that the response states, *m* the distinct numbers that it
writes, *s* at least (a program works values out and writes none of them), and *e* the distinct
equations that it states, of the kinds that the nodes hold.  S, M and E are its budget.
For *k* nodes and a text of length *L* (:func:`length_of`) the default budget is

    S = E = max(2 k + 8, 0.6 sqrt(L))        M = max(3 k + 20, 0.9 sqrt(L))

A dataset may store a budget for a problem: S0, M0, possibly E0, and L0, the characters of the
longest right solution that it was made from.  Then a response of length L may state

    S0                             if L <= L0
    S0 sqrt(L / L0)                if L0 < L < 4 L0
    max(S0 sqrt(L / L0), S)        if L >= 4 L0
    max(S0, S)                     if L0 is not known (files of earlier releases)

and write as many numbers as M0 and M give in the same way, and equations likewise.  Concise
solutions are little evidence about a thinking model's text of ten times their length, so there the
limit is at least the default budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from consensuspr.core import BatchResult

# The fields of a GuardBudget, as a dataset stores them; None for the default budget.
StoredBudget: TypeAlias = tuple[int, int, int, int] | None

# S, M and E of the default budget: for each node, for any response, for each root of a character.
STATEMENTS = (2, 8, 0.6)
NUMBERS = (3, 20, 0.9)
EQUATIONS = (2, 8, 0.6)

# Most characters that each different phrase of three words adds to a length.  Honest solutions have
# one in 6 to 12 characters; lines that differ only in their numbers, and filler, have almost none.
PHRASE_CHARS = 12

# Multiple of the longest source's length from which a stored budget is at least the default one.
DEFAULT_FROM = 4

# More than this share of right rollouts lowered, of at least so many, is worth a warning.
MAX_LOWERED = 0.01
MIN_RIGHT = 500


class GuardBudget(NamedTuple):
    """What a response may hold before its NCR falls."""

    statements: int  # distinct values that it states, 1 or more
    numbers: int  # distinct numbers that it writes, 1 or more
    length: int = 0  # characters of the longest solution that it was made from, 0 if not known
    equations: int = 0  # distinct equations that it states, 0 for the default


@dataclass(frozen=True, slots=True)
class GuardFigures:
    """The guard's arithmetic for one response."""

    statements: int  # s, distinct values that it states
    max_statements: float  # S
    numbers: int  # m, distinct numbers that it writes, s at least
    max_numbers: float  # M
    equations: int  # e, distinct equations that it states, of the kinds that its nodes hold
    max_equations: float  # E

    @property
    def factor(self) -> float:
        """What NCR is multiplied by, in (0, 1]."""
        factor = min(1.0, self.max_statements / max(self.statements, 1))
        factor *= min(1.0, self.max_numbers / max(self.numbers, 1))
        return factor * min(1.0, self.max_equations / max(self.equations, 1))


def characters(response: str | bytes) -> int:
    """Return the code points of a response; of bytes, those that begin one in UTF-8."""
    if isinstance(response, str) or response.isascii():
        return len(response)
    units = np.frombuffer(response, dtype=np.uint8)
    return int(np.count_nonzero((units & 0xC0) != 0x80))


def length_of(response: str | bytes) -> int:
    """Return L: the characters of a response, at most 12 for each of its different phrases."""
    # Imported here, because clients use this module without the core.
    from consensuspr.core import count_phrases

    most = characters(response)
    return min(most, PHRASE_CHARS * count_phrases(response, -(-most // PHRASE_CHARS)))


class GuardCounts(NamedTuple):
    """What the guard counts of a response: s, m and e."""

    statements: int
    numbers: int
    equations: int


def figures_of(
    counts: GuardCounts, budget: StoredBudget, num_nodes: int, length: int
) -> GuardFigures:
    """Return the figures of a response of that length, which states and writes so many."""

    def limit(default: tuple[int, int, float], stored: int) -> float:
        per_node, at_least, per_root = default
        most = max(float(per_node * num_nodes + at_least), per_root * math.sqrt(length))
        if budget is None or not stored:
            return most
        longest = budget[2]
        grown = stored * (math.sqrt(max(1.0, length / longest)) if longest else 1.0)
        return max(grown, most) if length >= DEFAULT_FROM * longest else grown

    statements, numbers, _, equations = budget or (0, 0, 0, 0)
    return GuardFigures(
        counts.statements,
        limit(STATEMENTS, statements),
        counts.numbers,
        limit(NUMBERS, numbers),
        counts.equations,
        limit(EQUATIONS, equations),
    )


def least_budget(budget: StoredBudget, num_nodes: int) -> GuardBudget:
    """Return the budget of the shortest response; a longer one may hold no less."""
    statements, numbers, equations = (
        per_node * num_nodes + at_least
        for per_node, at_least, _ in (STATEMENTS, NUMBERS, EQUATIONS)
    )
    if budget is not None:
        statements, numbers, equations = budget[0], budget[1], budget[3] or equations
    return GuardBudget(statements, numbers, equations=equations)


def counted(found: BatchResult) -> list[GuardCounts]:
    """Return the counts of the n texts of a batch; it must have been matched with counts."""
    if found.num_values is None or found.num_numbers is None or found.num_equations is None:
        raise ValueError("the guard needs a batch that was matched with counts=True")
    numbers = np.maximum(found.num_numbers, found.num_values)
    columns = (found.num_values.tolist(), numbers.tolist(), found.num_equations.tolist())
    return list(map(GuardCounts, *columns))


def factors_of(
    counts: Iterable[GuardCounts],
    budgets: Iterable[StoredBudget],
    num_nodes: Iterable[int],
    texts: Iterable[str | bytes],
) -> list[float]:
    """Return the factors of the NCR of n texts, given counts, stored budget and nodes of each.

    Only texts above the smallest budget of their problem are measured, which are few.
    """
    factors = []
    for count, budget, nodes, text in zip(counts, budgets, num_nodes, texts, strict=True):
        least = least_budget(budget, nodes)
        if (
            count.statements <= least.statements
            and count.numbers <= least.numbers
            and count.equations <= least.equations
        ):
            factors.append(1.0)
        else:
            factors.append(figures_of(count, budget, nodes, length_of(text)).factor)
    return factors


class GuardWatch:
    """Counts right rollouts, and those whose NCR the guard lowers."""

    def __init__(self) -> None:
        self.right = 0
        self.lowered = 0
        self._warned = False

    def add(self, right: int, lowered: int) -> str | None:
        """Count right scores with an NCR; return one sentence the first time of too many."""
        self.right += right
        self.lowered += lowered
        if self._warned or self.right < MIN_RIGHT or self.lowered <= MAX_LOWERED * self.right:
            return None
        self._warned = True
        return (
            f"the guard lowered NCR of {self.lowered:,} of {self.right:,} right rollouts "
            f"({self.lowered / self.right:.1%}): solutions here state more than their budget "
            "allows; give the dataset's problems budgets of their own, or turn the guard off "
            "(guard=False)"
        )
