"""The rollouts of a training run, from its score log.

A policy that trains is another one at each step, so that its **step** stands for the model of a
rollout: what a build says of models (they take turns, two of them must state a conclusion) holds
for steps.  What a single step states is what the policy happened to write then.

Validation is left out: what is made of it would no longer be validation.  Whether a rollout is
right, the log says; it was judged by the rule that the run is rewarded by.
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


def is_run(path: Path) -> bool:
    """Say whether a path is the folder of a run, not a file of rollouts."""
    return path.is_dir()


def read_run(folder: Path) -> Iterator[Row]:
    """Yield the training rollouts of a run whose text was kept, as rows of rollouts.

    Raises:
        InputError: the folder holds no score log.
    """
    return new_rollouts(LogReader(folder, _COLUMNS))


def follow_run(folder: Path) -> LogReader:
    """Return a reader for :func:`new_rollouts`, to be asked again and again."""
    return LogReader(folder, _COLUMNS, following=True)


def new_rollouts(reader: LogReader) -> Iterator[Row]:
    """Yield the training rollouts that have come since the reader was last asked."""
    for batch in reader.read():
        for row in batch.filter(pc.is_valid(batch.column("response"))).to_pylist():
            if row["split"] not in VALIDATION_SPLITS:
                yield _rollout(row)


def _rollout(row: Row) -> Row:
    decided = row["acc"] is not None and row["status"] != Status.ANSWER_UNDECIDED
    # Of a trainer that does not tell the step, a group is of one step.
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
