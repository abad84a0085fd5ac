"""Scored rollouts without a file: columns, sets and rows made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from consensusbench.evaluation.scored import (
    UNKNOWN,
    Columns,
    ProblemFacts,
    ScoredRollout,
    ScoredSet,
)
from tests.consensusbench.conftest import problem_facts, scored_rollout


def columns(problem: Sequence[int], acc: Sequence[float]) -> Columns:
    """Return rollouts with one node each, which the right ones match."""
    size = len(problem)
    hits = np.array([int(value == 1) for value in acc])
    labels = np.array([UNKNOWN] * size)
    no = np.zeros(size, dtype=np.bool_)
    ones = np.ones(size, dtype=np.int64)
    return Columns(
        problem=np.array(problem),
        acc=np.array(acc, dtype=np.float64),
        nodes=ones,
        hits=hits,
        nodes_without_final=ones,
        hits_without_final=hits,
        plain_hits=np.full(size, np.nan),
        plain_hits_without_final=np.full(size, np.nan),
        guard=np.ones(size),
        tokens=np.full(size, 10.0),
        chars=ones * 30,
        undecided=no,
        own_reasoning=~no,
        status=np.array(["OK"] * size),
        model=labels,
        source=labels,
        difficulty=labels,
        file=ones * 0,
    )


def facts(problem_id: str, is_final: Sequence[bool], **changes: Any) -> ProblemFacts:
    """Return a problem with one node for each element of ``is_final``."""
    plain = {"data_source": "", "ground_truth": "1"}
    return problem_facts(is_final, **{"problem_id": problem_id} | plain | changes)


def rollout(
    problem_id: str, acc: float | None, matched: Sequence[int], **changes: Any
) -> ScoredRollout:
    """Return a scored rollout; a 1 in ``matched`` is a node that was found."""
    hits = tuple(map(bool, matched))
    plain = {"problem_id": problem_id, "rollout_id": "", "model": "", "data_source": ""}
    return scored_rollout(**{**plain, "acc": acc, "matched": hits, **changes})


def scored_set(problems: Sequence[ProblemFacts], *rollouts: ScoredRollout) -> ScoredSet:
    """Return a set of rollouts that came from one file."""
    by_id = {problem.problem_id: problem for problem in problems}
    known = [replace(rollout, facts=by_id.get(rollout.problem_id)) for rollout in rollouts]
    return ScoredSet(by_id, known, files=("rollouts.jsonl",))
