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
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from consensuspr.core import BatchResult

Numbers: TypeAlias = npt.ArrayLike
Counts: TypeAlias = npt.NDArray[np.uint32]
Floats: TypeAlias = npt.NDArray[np.float64]

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


def default_budget(num_nodes: Numbers, lengths: Numbers) -> tuple[Floats, Floats]:
    """Return S and M of responses, (n,) each, of their (n,) nodes and lengths."""
    nodes = np.asarray(num_nodes, dtype=np.float64)
    root = np.sqrt(np.asarray(lengths, dtype=np.float64))
    statements, numbers = (
        np.maximum(each * nodes + at_least, per_root * root)
        for each, at_least, per_root in (STATEMENTS, NUMBERS)
    )
    return statements, numbers


def allowed(
    budgets: Sequence[tuple[int, int, int] | None], num_nodes: Numbers, lengths: Numbers
) -> tuple[Floats, Floats]:
    """Return S and M of responses, (n,) each.

    Args:
        budgets: (n,) stored budgets, None for the default.
        num_nodes: (n,) nodes of their problems.
        lengths: (n,) lengths of the responses, see :func:`length_of`.
    """
    measured = np.asarray(lengths, dtype=np.float64)
    columns = default_budget(num_nodes, measured)
    for at, budget in enumerate(budgets):
        if budget is None:
            continue
        *stored, longest = budget
        growth = math.sqrt(max(1.0, measured[at] / longest)) if longest else 1.0
        for column, at_source in zip(columns, stored, strict=True):
            grown = at_source * growth
            column[at] = max(grown, column[at]) if measured[at] >= DEFAULT_FROM * longest else grown
    return columns


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


def factors(
    statements: Numbers, numbers: Numbers, max_statements: Numbers, max_numbers: Numbers
) -> Floats:
    """Return what NCR is multiplied by, (n,) in (0, 1], of the (n,) s and m and their budget."""
    return np.minimum(1.0, max_statements / np.maximum(statements, 1)) * np.minimum(
        1.0, max_numbers / np.maximum(numbers, 1)
    )


def factors_of(
    statements: Numbers,
    numbers: Numbers,
    budgets: Sequence[tuple[int, int, int] | None],
    num_nodes: Sequence[int],
    texts: Sequence[str | bytes],
) -> Floats:
    """Return the factors of the NCR of texts, (n,) in (0, 1].

    Only texts above the smallest budget of their problem are measured, which are few.

    Args:
        statements: (n,) s of each text.
        numbers: (n,) m of each text.
        budgets: (n,) stored budgets of their problems, None for the default.
        num_nodes: (n,) nodes of their problems.
        texts: n texts.
    """
    found = np.ones(len(texts))
    stated, written = np.asarray(statements), np.asarray(numbers)
    over = []
    for at, (budget, nodes) in enumerate(zip(budgets, num_nodes, strict=True)):
        most_stated, most_written, _ = budget or least_budget(nodes)
        if stated[at] > most_stated or written[at] > most_written:
            over.append(at)
    if over:
        found[over] = factors(
            stated[over],
            written[over],
            *allowed(
                [budgets[at] for at in over],
                [num_nodes[at] for at in over],
                [length_of(texts[at]) for at in over],
            ),
        )
    return found


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
        if not self.lowered:
            return None
        share = self.lowered / self.right
        if self._warned or self.right < MIN_RIGHT or share <= MAX_LOWERED:
            return None
        self._warned = True
        return (
            f"the guard lowered NCR of {self.lowered:,} of {self.right:,} right rollouts "
            f"({share:.1%}): solutions here state more than their budget allows; give the "
            "dataset's problems budgets of their own, or turn the guard off (guard=False)"
        )
