"""Which rollouts stand in the page: some of every kind, the telling ones first.

Rollouts are sorted into strata by model and by kind (their diagnosis where there is one, else
right or wrong; a status other than OK is a kind of its own), and the strata take turns.  Inside a
stratum the first are those in which accuracy and coverage disagree most, and after them, one for
one, rollouts that a digest of their names picks: the typical beside the extreme.  Equal input
gives an equal choice.

Rollouts with nodes come first, in the choice and in its order: of those without, which show no
hits, a tenth of the page is kept for a few of each status, or what the others leave free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, TypeAlias

from consensusbench.report.sides import side_of
from consensuspr.scoring.types import Status

if TYPE_CHECKING:
    from consensusbench.evaluation.scored import ScoredRollout


# Of rollouts that could not be scored, and of one status and model, one is much like another.
OF_A_STATUS = 10

# Part of the page that rollouts without nodes may take from those that have some.
_KEPT_FOR_NODELESS = 10

# A rollout's place among the files that were read: (file, row).
Place: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Label:
    """The class of a rollout as a person reads it, and what decided."""

    name: str
    reason: str


def choose(
    rollouts: Sequence[ScoredRollout], diagnoses: Mapping[Place, Label], limit: int
) -> list[ScoredRollout]:
    """Return at most ``limit`` rollouts in the order of the files, those with nodes first."""
    chosen = list(rollouts)
    if len(rollouts) > limit:
        nodeless = _in_turns([r for r in rollouts if not r.matched], diagnoses, limit)
        kept = min(len(nodeless), limit // _KEPT_FOR_NODELESS)
        chosen = _in_turns([r for r in rollouts if r.matched], diagnoses, limit - kept)
        chosen += nodeless[: limit - len(chosen)]
    return sorted(chosen, key=lambda r: (not r.matched, r.file, r.row))


def _in_turns(
    rollouts: Sequence[ScoredRollout], diagnoses: Mapping[Place, Label], limit: int
) -> list[ScoredRollout]:
    """Return at most ``limit`` rollouts, one of each stratum in turn."""
    strata: dict[tuple[str, str], list[ScoredRollout]] = {}
    for rollout in rollouts:
        strata.setdefault((kind_of(rollout, diagnoses), rollout.model), []).append(rollout)
    ordered = [
        _telling_first(strata[kind, model])[: OF_A_STATUS if kind in Status.__members__ else None]
        for kind, model in sorted(strata)
    ]
    chosen: list[ScoredRollout] = []
    turn = 0
    while len(chosen) < limit and any(turn < len(stratum) for stratum in ordered):
        chosen += [stratum[turn] for stratum in ordered if turn < len(stratum)]
        turn += 1
    return chosen[:limit]


def kind_of(rollout: ScoredRollout, diagnoses: Mapping[Place, Label]) -> str:
    """Return what a rollout is an example of."""
    if rollout.status is not Status.OK:
        return rollout.status.value
    label = diagnoses.get((rollout.file, rollout.row))
    return side_of(rollout).value if label is None else label.name


def _telling_first(rollouts: Sequence[ScoredRollout]) -> list[ScoredRollout]:
    extreme = sorted(rollouts, key=lambda r: (-_disagreement(r), r.file, r.row))
    typical = sorted(rollouts, key=_shuffled)
    woven = (each for pair in zip(extreme, typical, strict=True) for each in pair)
    return list({(rollout.file, rollout.row): rollout for rollout in woven}.values())


def _disagreement(rollout: ScoredRollout) -> float:
    known = rollout.acc is not None and rollout.ncr is not None
    return abs((rollout.acc or 0.0) - (rollout.ncr or 0.0)) if known else -1.0


def _shuffled(rollout: ScoredRollout) -> bytes:
    return sha256(f"{rollout.file}:{rollout.row}:{rollout.rollout_id!r}".encode()).digest()
