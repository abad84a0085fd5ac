"""Scored rollouts made by hand, with what a test says and nothing surprising otherwise."""

from __future__ import annotations

from typing import Any

from consensusbench.evaluation.scored import ProblemFacts, ScoredRollout
from tests.consensusbench.conftest import problem_facts, scored_rollout


def facts(*, final: str = "...F", problem_id: str = "p") -> ProblemFacts:
    """Return a problem whose nodes are ``.`` or, where they state the final answer, ``F``."""
    is_final = [sign == "F" for sign in final]
    changes = {"problem_id": problem_id, "data_source": "sums", "ground_truth": "42"}
    return problem_facts(is_final, **changes)


def rollout(hits: str = "xxxx", **changes: Any) -> ScoredRollout:
    """Return a rollout that hits the nodes marked ``x``; the others are ``.``."""
    matched = tuple(sign == "x" for sign in hits)
    plain = {"data_source": "sums", "num_chars": 1000, "answer": "42", "answer_method": "rational"}
    return scored_rollout(**{"matched": matched} | plain | changes)
