"""Scored parts for the tests of score logs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from consensuspr.score_log import LoggedPart, LogReader, SampleKeys
from consensuspr.scoring.rewards import RewardSpec
from consensuspr.scoring.types import (
    AnswerRule,
    Identity,
    Rollout,
    Sample,
    Score,
    ScoreColumns,
    ScoreOptions,
    Status,
)

IDENTITY = Identity(
    "d", "sha256:" + "0" * 64, "1", "2", RewardSpec.linear(), 0, AnswerRule.AUTO, "0.1.0"
)
KEYS = SampleKeys()


def part_of(
    texts: Sequence[str | bytes],
    scores: Sequence[Score] | ScoreColumns | None = None,
    samples: Sequence[Sample] | None = None,
    **more: Any,
) -> LoggedPart:
    """Return a part of one rollout a text, right unless the scores say otherwise."""
    rollouts = [
        Rollout(f"p{at}", text, sample=None if samples is None else samples[at])
        for at, text in enumerate(texts)
    ]
    right = Score(Status.OK, 1.0, 1.0, 1.0, 2, 1, (True, False), channel_numbers=b"\1\0")
    given = {"identity": IDENTITY, "options": ScoreOptions(), "unix_s": time.time(), **more}
    return LoggedPart(rollouts, scores or [right] * len(texts), **given)


def sample(number: int, step: int | None = 1, keys: SampleKeys = KEYS) -> Sample:
    """Return a sample with a key of its own."""
    return Sample(keys.key(number), step, f"g{number // 4}", "train")


def rows_in(run: Path, *columns: str) -> list[dict[str, Any]]:
    """Return all samples of a run."""
    read = LogReader(run, columns or None).read()
    return [row for batch in read for row in batch.to_pylist()]
