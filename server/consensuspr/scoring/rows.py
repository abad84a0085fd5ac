"""Between rows of rollouts files and the values that are scored."""

from __future__ import annotations

from typing import Final

from consensuspr.data import Row
from consensuspr.scoring.types import Rollout, Score

# Arrow types of what is added, so that a file of one status has the columns of any other.
SCORED_TYPES: Final = {
    "acc": "double",
    "ncr": "double",
    "num_nodes": "int64",
    "num_matched": "int64",
    "matched": "list<bool>",
    "tpn": "double",
    "reward": "double",
    "status": "string",
}


def rollout_from_row(row: Row) -> Rollout:
    """Return the rollout that a checked row describes."""
    return Rollout(
        problem_id=row["problem_id"],
        response=row["response"],
        ground_truth=row.get("ground_truth"),
        num_tokens=row.get("num_tokens"),
        data_source=row.get("data_source"),
        rollout_id=row.get("rollout_id"),
    )


def scored_row(row: Row, score: Score) -> Row:
    """Return the row with the columns of its score; columns of these names are replaced.

    ``spans`` is among them where the score has them.
    """
    scored = row | {
        "acc": score.acc,
        "ncr": score.ncr,
        "num_nodes": score.num_nodes,
        "num_matched": score.num_matched,
        "matched": list(score.matched),
        "tpn": score.tpn,
        "reward": score.reward,
        "status": score.status.value,
    }
    if score.spans is not None:
        scored["spans"] = [None if span is None else list(span) for span in score.spans]
    return scored
