"""Scored rollouts made by hand, with what a test says and nothing surprising otherwise."""

from __future__ import annotations

from typing import Any

from consensusbench.evaluation.scored import ProblemFacts, ScoredRollout
from consensuspr.scoring.types import Status


def facts(*, final: str = "...F", problem_id: str = "p") -> ProblemFacts:
    """Return a problem whose nodes are ``.`` or, where they state the final answer, ``F``."""
    names = tuple(f"n{place}" for place in range(1, len(final) + 1))
    return ProblemFacts(
        problem_id=problem_id,
        data_source="sums",
        problem="?",
        ground_truth="42",
        difficulty=None,
        split=None,
        node_ids=names,
        labels=names,
        is_final=tuple(sign == "F" for sign in final),
        types=("equation",) * len(final),
    )


def rollout(hits: str = "xxxx", **changes: Any) -> ScoredRollout:
    """Return a rollout that hits the nodes marked ``x``; the others are ``.``."""
    fields: dict[str, Any] = {
        "problem_id": "p",
        "rollout_id": "r",
        "model": "m",
        "data_source": "sums",
        "status": Status.OK,
        "acc": 1.0,
        "matched": tuple(sign == "x" for sign in hits),
        "spans": None,
        "num_tokens": None,
        "num_chars": 1000,
        "answer": "42",
        "answer_method": "rational",
        "file": 0,
        "row": 0,
    }
    return ScoredRollout(**(fields | changes))
