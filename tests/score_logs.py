"""Scored parts for the tests of score logs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from consensuspr.score_log import LoggedPart, LogReader, ScoreLog
from consensuspr.score_log.files import new_writer, path_of, write_parquet
from consensuspr.score_log.schema import SCHEMA
from consensuspr.scoring.rewards import RewardSpec
from consensuspr.scoring.types import (
    AnswerRule,
    Identity,
    Rollout,
    Sample,
    SampleKeys,
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


def log_formulas(run: Path, *rewards: RewardSpec) -> None:
    """Write a log of several rewards: one sample of the first, two of the next, and so on."""
    with closing(ScoreLog(run, "server")) as log:
        for at, reward in enumerate(rewards):
            samples = [sample(10 * at + number, step=None) for number in range(at + 1)]
            identity = replace(IDENTITY, reward=reward)
            log.put(part_of(["x"] * (at + 1), samples=samples, identity=identity))


def rows_in(run: Path, *columns: str, following: bool = False) -> list[dict[str, Any]]:
    """Return all samples of a run; ``following``: none where there is no log yet."""
    read = LogReader(run, columns or None, following=following).read()
    return [row for batch in read for row in batch.to_pylist()]


def write_log(run: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows of a trainer's process into a file; a missing value is null."""
    rows = list(rows)
    keys = SampleKeys()
    columns: dict[str, Any] = {
        name: pa.array([row.get(name) for row in rows], SCHEMA.field(name).type)
        for name in SCHEMA.names
        if name != "key"
    }
    columns["key"] = pa.array([keys.next() for _ in rows], SCHEMA.field("key").type)
    (run / "scores").mkdir(parents=True, exist_ok=True)
    batch = pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)
    write_parquet(path_of(run, new_writer("trainer"), 0, len(rows)), iter([batch]))
