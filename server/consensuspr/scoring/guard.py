"""The guard: what a response may state before its NCR falls.

A deviation from the paper, whose NCR (equation 1) can be earned without solving anything: a text
that lists all sums, products and quotients of the problem's numbers states the nodes' equations
among hundreds of others.  So NCR is multiplied by

    min(1, S / s) * min(1, M / m)

where *s* counts the distinct values that the response states, *m* the distinct numbers that it
writes, *s* at least (a program works values out and writes none of them).  S and M are its budget.
For *k* nodes and a text of length *L* (:func:`length_of`) the default budget is

    S = max(2 k + 8, 0.6 sqrt(L))        M = max(3 k + 20, 0.9 sqrt(L))

A dataset may store a budget for a problem: S0, M0 and L0, the characters of the longest right
solution that it was made from.  Then a response of length L may state

    S0                             if L <= L0
    S0 sqrt(L / L0)                if L0 < L < 4 L0
    max(S0 sqrt(L / L0), S)        if L >= 4 L0
    max(S0, S)                     if L0 is not known (files of earlier releases)

and write as many numbers as M0 and M give in the same way.  Concise solutions are little evidence
about a thinking model's text of ten times their length, so there the limit is at least the default
budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from consensuspr.core import BatchResult

Counts: TypeAlias = npt.NDArray[np.uint32]
# The fields of a GuardBudget, as a dataset stores them; None for the default budget.
StoredBudget: TypeAlias = tuple[int, int, int] | None

# S and M of the default budget: for each node, for any response, for each root of a character.
STATEMENTS = (2, 8, 0.6)
NUMBERS = (3, 20, 0.9)

# Most characters that each different phrase of three words adds to a length.  Honest solutions have
# one in 6 to 12 characters; lines that differ only in their numbers, and filler, have almost none.
PHRASE_CHARS = 12

# Multiple of the longest source's length from which a stored budget is at least the default one.
DEFAULT_FROM = 4

# More than this share of right rollouts lowered, of at least so many, is worth a warning.
MAX_LOWERED = 0.01
MIN_RIGHT = 500


class GuardBudget(NamedTuple):
    """What a response may hold before its NCR falls.

    Attributes:
        statements: distinct values that it states, 1 or more.
        numbers: distinct numbers that it writes, 1 or more.
        length: characters of the longest solution that it was made from, 0 if not known.
    """

    statements: int
    numbers: int
    length: int = 0


@dataclass(frozen=True, slots=True)
class GuardFigures:
    """The guard's arithmetic for one response.

    Attributes:
        statements: s, distinct values that the response states.
        max_statements: S, how many it may state.
        numbers: m, distinct numbers that the response writes, s at least.
        max_numbers: M, how many it may write.
    """

    statements: int
    max_statements: float
    numbers: int
    max_numbers: float

    @property
    def factor(self) -> float:
        """What NCR is multiplied by, in (0, 1]."""
        stated = min(1.0, self.max_statements / max(self.statements, 1))
        return stated * min(1.0, self.max_numbers / max(self.numbers, 1))


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


def figures_of(
    statements: int, numbers: int, budget: StoredBudget, num_nodes: int, length: int
) -> GuardFigures:
    """Return the figures of a response of that length, which states and writes so many."""
    limits = []
    for place, (per_node, at_least, per_root) in enumerate((STATEMENTS, NUMBERS)):
        limit = max(float(per_node * num_nodes + at_least), per_root * math.sqrt(length))
        if budget is not None:
            longest = budget[2]
            growth = math.sqrt(max(1.0, length / longest)) if longest else 1.0
            grown = budget[place] * growth
            limit = max(grown, limit) if length >= DEFAULT_FROM * longest else grown
        limits.append(limit)
    return GuardFigures(statements, limits[0], numbers, limits[1])


def least_budget(num_nodes: int) -> GuardBudget:
    """Return the default budget of the shortest response; a longer one may hold no less."""
    return GuardBudget(
        STATEMENTS[0] * num_nodes + STATEMENTS[1], NUMBERS[0] * num_nodes + NUMBERS[1]
    )


def counted(found: BatchResult) -> tuple[Counts, Counts]:
    """Return s and m of the texts of a batch, (n,) each; it must have been matched with counts."""
    if found.num_values is None or found.num_numbers is None:
        raise ValueError("the guard needs a batch that was matched with counts=True")
    return found.num_values, np.maximum(found.num_numbers, found.num_values)


def factors_of(
    statements: Iterable[int],
    numbers: Iterable[int],
    budgets: Iterable[StoredBudget],
    num_nodes: Iterable[int],
    texts: Iterable[str | bytes],
) -> list[float]:
    """Return the factors of the NCR of n texts, given s, m, stored budget and nodes of each.

    Only texts above the smallest budget of their problem are measured, which are few.
    """
    factors = []
    for stated, written, budget, nodes, text in zip(
        map(int, statements), map(int, numbers), budgets, num_nodes, texts, strict=True
    ):
        least = budget or least_budget(nodes)
        if stated <= least[0] and written <= least[1]:
            factors.append(1.0)
        else:
            figures = figures_of(stated, written, budget, nodes, length_of(text))
            factors.append(figures.factor)
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
