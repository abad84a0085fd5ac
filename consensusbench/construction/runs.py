"""The rollouts of a training run, from its score log.

A policy changes with each step, so that its **step** stands for the model of a rollout: models take
turns, and two of them must state a conclusion.  Validation rollouts are left out, because what is
made of them would no longer be validation.  The log says whether a rollout is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.compute as pc

from consensuspr.client.training import VALIDATION_SPLITS
from consensuspr.data import Row
from consensuspr.score_log import LogReader
from consensuspr.scoring.types import Status

_COLUMNS = (
    *("run", "step", "split", "group_id", "rollout_id", "problem_id", "data_source"),
    *("response", "ground_truth", "status", "acc"),
)


def read_run(folder: Path) -> Iterator[Row]:
    """Yield the training rollouts of a run whose text was kept, as rows of rollouts.

    Raises:
        InputError: the folder holds no score log.
    """
    for batch in LogReader(folder, _COLUMNS).read():
        for row in batch.filter(pc.is_valid(batch.column("response"))).to_pylist():
            if row["split"] not in VALIDATION_SPLITS:
                yield _rollout(row)


def _rollout(row: Row) -> Row:
    decided = row["acc"] is not None and row["status"] != Status.ANSWER_UNDECIDED
    # Some trainers do not give the step; a group belongs to one step.
    step = row["group_id"] if row["step"] is None else row["step"]
    return {
        "problem_id": row["problem_id"],
        "rollout_id": row["rollout_id"],
        "response": row["response"],
        "model": "" if step is None else f"{row['run'] or 'run'} step {step}",
        "ground_truth": row["ground_truth"],
        "data_source": row["data_source"],
        "correct": row["acc"] == 1.0 if decided else None,
    }
