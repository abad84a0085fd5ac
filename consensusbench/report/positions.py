"""Where in the order of nodes, and where in the text, rollouts reach their nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from consensusbench.evaluation.scored import ScoredRollout

# Fifths of a problem's nodes: problems have between 2 and 12 of them.
ORDER_BINS = 5
TEXT_STEPS = 20


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve over relative positions.

    Attributes:
        points: (position in [0, 1], share of nodes in [0, 1]).
        rollouts: how many rollouts it is the mean of.
    """

    points: tuple[tuple[float, float], ...]
    rollouts: int


def reached_by_order(rollouts: Iterable[ScoredRollout], bins: int = ORDER_BINS) -> Curve:
    """Return which share of the nodes is reached, by their place in the problem's order.

    Node i of k (from 1) stands at (i - 0.5) / k.  All nodes of all rollouts count alike.
    """
    met, seen = [0] * bins, [0] * bins
    used = 0
    for rollout in rollouts:
        nodes = len(rollout.matched)
        used += nodes > 0
        for at, matched in enumerate(rollout.matched):
            slot = (2 * at + 1) * bins // (2 * nodes)
            seen[slot] += 1
            met[slot] += matched
    points = tuple(((i + 0.5) / bins, met[i] / seen[i]) for i in range(bins) if seen[i])
    return Curve(points, used)


def coverage_by_position(rollouts: Iterable[ScoredRollout], steps: int = TEXT_STEPS) -> Curve:
    """Return mean coverage after reading the first share of the text, from 0 to all of it.

    A node counts from the end of its first hit on.  Rollouts without spans, without nodes or
    without text are left out.  The curve ends at their mean NCR.
    """
    arrived = [0.0] * (steps + 1)
    used = 0
    for rollout in rollouts:
        if rollout.spans is None or not rollout.spans or not rollout.num_chars:
            continue
        used += 1
        for span in rollout.spans:
            if span is not None:
                slot = -(-span[1] * steps // rollout.num_chars)
                arrived[min(slot, steps)] += 1 / len(rollout.spans)
    if not used:
        return Curve((), 0)
    points, total = [], 0.0
    for slot, share in enumerate(arrived):
        total += share
        points.append((slot / steps, total / used))
    return Curve(tuple(points), used)
