"""Budgets of the guard, made of what the right rollouts of a problem state.

The default budget (:mod:`consensuspr.scoring.guard`) grows with the length of a response, which a
policy can raise with varied text.  A stored budget does not grow up to the length of its longest
source.  It is 1.5 times the most that a right rollout states, and at least a few values more than
the nodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from consensuspr.core import Matcher, match_batch
from consensuspr.scoring.guard import GuardBudget, StoredBudget, counted

# Room above the right rollout that states most: others take more steps.
MARGIN = 1.5
# The least, whatever rollouts there were: for each node, and for any problem.
LEAST_STATEMENTS = (2, 4)
LEAST_NUMBERS = (3, 12)


@dataclass(frozen=True, slots=True)
class Stated:
    """The most that one of some rollouts states.

    Attributes:
        statements: distinct values.
        numbers: distinct numbers, those values at least (a program writes few of its own).
        length: characters of the longest rollout; 0 if a file of an earlier release has none.
    """

    statements: int = 0
    numbers: int = 0
    length: int = 0

    def most(self, other: Stated) -> Stated:
        """Return the larger of each."""
        return Stated(
            max(self.statements, other.statements),
            max(self.numbers, other.numbers),
            max(self.length, other.length),
        )


def stated_in(responses: Sequence[str]) -> Stated:
    """Return the most that one of these responses states."""
    if not responses:
        return Stated()
    counts = counted(match_batch([Matcher([])] * len(responses), responses, threads=1))
    return Stated(
        max(count.statements for count in counts),
        max(count.numbers for count in counts),
        max(map(len, responses)),
    )


# For each node, and for any problem; as the default budget's.
LEAST_EQUATIONS = (2, 8)


def with_equations(budget: StoredBudget, most: int, num_nodes: int) -> StoredBudget:
    """Return a budget with its limit on equations.

    Args:
        most: the most distinct equations that a right rollout states, of the kinds that the nodes
            hold; 0 if they hold none.
    """
    if budget is None or not most:
        return budget
    return GuardBudget(*budget[:3], _enough(most, LEAST_EQUATIONS, num_nodes))


def _enough(most: int, least: tuple[int, int], num_nodes: int) -> int:
    return max(math.ceil(MARGIN * most), least[0] * num_nodes + least[1])


def budget_of(stated: Stated, num_nodes: int) -> GuardBudget:
    """Return the budget of a problem from what its right rollouts state."""
    return GuardBudget(
        _enough(stated.statements, LEAST_STATEMENTS, num_nodes),
        _enough(stated.numbers, LEAST_NUMBERS, num_nodes),
        stated.length,
    )
