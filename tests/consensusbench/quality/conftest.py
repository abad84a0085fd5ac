"""Scored rollouts made by hand, with plain values for everything that a test does not name."""

from __future__ import annotations

from typing import Any

from consensusbench.evaluation.scored import ScoredRollout
from tests.consensusbench.conftest import problem_facts, scored_rollout


def rollout(hits: str = "xxxx", *, final: str | None = None, **changes: Any) -> ScoredRollout:
    """Return a rollout that hits the nodes marked ``x``; those marked ``F`` are final.

    Unless ``final`` says otherwise, the last node is.
    """
    matched = tuple(sign == "x" for sign in hits)
    is_final = [sign == "F" for sign in final or "." * (len(hits) - 1) + "F"]
    plain = {"data_source": "sums", "num_chars": 1000, "answer": "42", "answer_method": "rational"}
    facts = problem_facts(is_final, data_source="sums", ground_truth="42")
    return scored_rollout(**{"matched": matched, "facts": facts} | plain | changes)
