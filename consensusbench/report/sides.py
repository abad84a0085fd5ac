"""Right and wrong rollouts, the two sides that most charts compare."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from consensusbench.evaluation.scored import ScoredRollout


class Side(StrEnum):
    """Whether the final answer is right; the value is also a class of the style sheet."""

    RIGHT = "right"
    WRONG = "wrong"
    UNKNOWN = "unknown"


COMPARED = (Side.RIGHT, Side.WRONG)


def side_of(rollout: ScoredRollout) -> Side:
    """Return the side of a rollout; without an accuracy it is unknown, never wrong."""
    if rollout.acc is None:
        return Side.UNKNOWN
    return Side.RIGHT if rollout.acc >= 0.5 else Side.WRONG


def by_side(rollouts: Iterable[ScoredRollout]) -> dict[Side, list[ScoredRollout]]:
    """Return the rollouts of each side, all sides present."""
    sides: dict[Side, list[ScoredRollout]] = {side: [] for side in Side}
    for rollout in rollouts:
        sides[side_of(rollout)].append(rollout)
    return sides
