"""Scored rollouts as columns, which is what metrics compute on.

One array element per rollout; an unknown value is NaN in a float column.  Problems are numbered
in the order of their ids, not of the rollouts: a seeded resampling of problems then gives the
same result for the same rollouts in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from consensusbench.evaluation.difficulty import DIFFICULTIES
from consensusbench.evaluation.scored_types import ScoredRollout, ScoredSet
from consensuspr.scoring.types import Status

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
# Of Python strings: numpy's own give every row the width of the longest.
Texts: TypeAlias = NDArray[np.object_]

UNKNOWN: Final = "(none)"


@dataclass(frozen=True, slots=True)
class Columns:
    """Rollouts as columns of equal length n.

    Attributes:
        problem: (n,) number of the problem, in the order of ids.
        acc: (n,) 0.0, 1.0 or NaN.
        nodes: (n,) nodes that were looked for; 0 where none were.
        hits: (n,) nodes that were found.
        nodes_without_final, hits_without_final: (n,) the same without the nodes that state
            the final answer.
        tokens: (n,) length in tokens, or NaN.
        chars: (n,) length in code points.
        undecided: (n,) acc is 0 because the answer check came to no verdict.
        undecided_by_load: (n,) ... and a calmer machine would come to one.
        status: (n,) names of statuses.
        model, source, difficulty: (n,) labels, :data:`UNKNOWN` where there is none.
        file: (n,) position of the file.
    """

    problem: Ints
    acc: Floats
    nodes: Ints
    hits: Ints
    nodes_without_final: Ints
    hits_without_final: Ints
    tokens: Floats
    chars: Ints
    undecided: Bools
    undecided_by_load: Bools
    status: Texts
    model: Texts
    source: Texts
    difficulty: Texts
    file: Ints

    def __len__(self) -> int:
        return len(self.problem)

    def where(self, wanted: Bools) -> Self:
        """Return the rollouts for which ``wanted`` holds."""
        return type(self)(*[getattr(self, column.name)[wanted] for column in fields(self)])


def columns_of(scored: ScoredSet) -> tuple[Columns, tuple[str, ...]]:
    """Return the rollouts of a set as columns, and the problem ids by number."""
    rollouts = scored.rollouts
    problem_ids = tuple(sorted({rollout.problem_id for rollout in rollouts}))
    number_of = {problem_id: number for number, problem_id in enumerate(problem_ids)}
    without = [r.matched_without_final(scored.facts(r)) for r in rollouts]
    columns = Columns(
        problem=_ints([number_of[r.problem_id] for r in rollouts]),
        acc=_floats([r.acc for r in rollouts]),
        nodes=_ints([len(r.matched) for r in rollouts]),
        hits=_ints([sum(r.matched) for r in rollouts]),
        nodes_without_final=_ints([len(matched) for matched in without]),
        hits_without_final=_ints([sum(matched) for matched in without]),
        tokens=_floats([r.num_tokens for r in rollouts]),
        chars=_ints([r.num_chars for r in rollouts]),
        undecided=np.array([r.undecided for r in rollouts], dtype=np.bool_),
        undecided_by_load=np.array([r.undecided_by_load for r in rollouts], dtype=np.bool_),
        status=_texts([r.status.value for r in rollouts]),
        model=_texts([r.model or UNKNOWN for r in rollouts]),
        source=_texts([r.data_source or UNKNOWN for r in rollouts]),
        difficulty=_texts([_difficulty(scored, r) for r in rollouts]),
        file=_ints([r.file for r in rollouts]),
    )
    return columns, problem_ids


def statuses_of(columns: Columns) -> dict[str, int]:
    """Return how many rollouts have which status, in the order in which statuses are told."""
    names, counts = np.unique(columns.status, return_counts=True)
    count_of = dict(zip(names.tolist(), counts.tolist(), strict=True))
    return {status.value: count_of[status.value] for status in Status if status.value in count_of}


def label_order(label: str) -> tuple[int, int, str]:
    """Return what labels sort by: difficulties as they grow, names by letter, unknown last."""
    if label in DIFFICULTIES:
        return 0, DIFFICULTIES.index(label), label
    return int(label == UNKNOWN), 0, label


def ncr_of(hits: Ints, nodes: Ints) -> Floats:
    """Return the Node Coverage Rate of each rollout.

    Equation 1 of the paper: matched nodes over nodes.  NaN where there is no node to match:
    the paper's problems all have some.
    """
    ncr: Floats = np.divide(hits, nodes, out=np.full(len(hits), np.nan), where=nodes > 0)
    return ncr


def tpn_of(tokens: Floats, hits: Ints) -> Floats:
    """Return the tokens per node of each rollout.

    Equation 2 of the paper: length over matched nodes.  The paper leaves open what a rollout
    without a matched node has; here it has none (NaN), as it has where its length is unknown.
    """
    tpn: Floats = np.divide(tokens, hits, out=np.full(len(hits), np.nan), where=hits > 0)
    return tpn


def _difficulty(scored: ScoredSet, rollout: ScoredRollout) -> str:
    facts = scored.facts(rollout)
    return (facts.difficulty if facts is not None else None) or UNKNOWN


def _floats(values: Sequence[float | None]) -> Floats:
    return np.array(values, dtype=np.float64)


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int64)


def _texts(values: Sequence[str]) -> Texts:
    return np.array(values, dtype=np.object_)
