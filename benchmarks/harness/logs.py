"""A large score log: as many samples as are asked for, with short texts, in seconds.

The figures are drawn, not scored: nothing that reads a log looks at a response again.  Texts are
cut from one page of words, so that they pack and search like text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa

from consensuspr.score_log.schema import SCHEMA
from consensuspr.score_log.segments import new_stem, write_parquet
from consensuspr.scoring.rewards import RewardSpec
from consensuspr.scoring.types import SampleKeys

# Samples of a step, of a prompt in it, and of a batch and a segment of the log.
STEP_ROWS = 1024
GROUP_ROWS = 8
BATCH_ROWS = 4096
SEGMENT_ROWS = 65_536
SOURCES = ("algebra", "arithmetic", "counting", "geometry", "number theory")
NODES = 6
TEXT_CHARS = 400
# When it began, in Unix seconds, and how long a step took.
BEGAN_S, STEP_S = 1.75e9, 60
DIGEST = "sha256:" + "0" * 64
# Stands in one response of a thousand.
NEEDLE = "Hence we list all sums."

_REWARD = json.dumps(asdict(RewardSpec.linear()), sort_keys=True)


def write_large_log(run: Path, rows: int, problems: int = 5_000, seed: int = 0) -> None:
    """Write the log of a run whose NCR climbs.

    Args:
        run: its folder.
        rows: samples in all.
        problems: different ones.
        seed: of everything drawn.
    """
    (run / "scores").mkdir(parents=True)
    random = np.random.default_rng(seed)
    keys = SampleKeys()
    for number, first in enumerate(range(0, rows, SEGMENT_ROWS), start=1):
        last = min(rows, first + SEGMENT_ROWS)

        def batches(first: int = first, last: int = last) -> Iterator[pa.RecordBatch]:
            for begin in range(first, last, BATCH_ROWS):
                yield _batch(
                    np.arange(begin, min(last, begin + BATCH_ROWS)), problems, random, keys
                )

        # Named by time and number: they are begun in order.
        stem = f"20250601T{number:06d}-{new_stem('trainer', number).partition('-')[2]}"
        write_parquet(run / "scores" / f"{stem}.parquet", batches())


def _batch(
    rows: np.ndarray[tuple[int], np.dtype[np.int64]],
    problems: int,
    random: np.random.Generator,
    keys: SampleKeys,
) -> pa.RecordBatch:
    count = len(rows)
    step = rows // STEP_ROWS + 1
    group = rows // GROUP_ROWS
    problem = (group * 2_654_435_761) % problems
    right = random.random(count) < 0.4
    chance = np.where(right, 0.85, np.minimum(0.8, 0.2 + step / 1500))
    reached = random.random((count, NODES)) < chance[:, None]
    guard = np.where(random.random(count) < 0.02, 0.3, 1.0)
    raw = reached.mean(axis=1)
    ncr = raw * guard
    acc = right.astype(np.float64)
    tokens = random.integers(80, 4000, count)
    reward = 0.5 * acc + 0.5 * ncr
    failed = random.random(count) < 0.002
    channels = np.where(reached, np.where(random.random((count, NODES)) < 0.2, 2, 1), 0)
    lists = pa.ListArray.from_arrays(
        pa.array(np.arange(0, NODES * count + 1, NODES, dtype=np.int32)),
        pa.array(["", "pattern", "statement"]).take(pa.array(channels.ravel())),
    )
    page = " ".join(f"so x{at} = {at * 7} and y = {at % 97}," for at in range(2_000))
    starts = random.integers(0, len(page) - TEXT_CHARS, count).tolist()
    texts = [page[start : start + TEXT_CHARS] for start in starts]
    for at in np.flatnonzero(rows % 1000 == 0).tolist():
        texts[at] += NEEDLE

    def numbers(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> pa.Array:
        return pa.array(values, pa.float64(), mask=failed)

    def named(prefix: str, values: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
        return pa.array([f"{prefix}{value}" for value in values.tolist()])

    columns = {
        "key": pa.array([keys.next() for _ in range(count)], pa.binary(16)),
        "time": pa.array(((BEGAN_S + step * STEP_S) * 1e6).astype(np.int64)),
        "side": pa.repeat("trainer", count),
        "step": pa.array(step),
        "epoch": pa.array(step // 200),
        "split": pa.array(np.where(rows % 64 == 0, "test", "train").tolist()),
        "group_id": named("g", group),
        "problem_id": named("problem-", problem),
        "data_source": pa.array([SOURCES[at] for at in (problem % len(SOURCES)).tolist()]),
        "response": pa.array(texts),
        "response_size": pa.array([len(text) for text in texts]),
        "num_tokens": pa.array(tokens),
        "status": pa.array(np.where(failed, "INTERNAL", "OK").tolist()),
        "reward": numbers(reward),
        "acc": numbers(acc),
        "ncr": numbers(ncr),
        "ncr_raw": numbers(raw),
        "guard": numbers(guard),
        "num_nodes": pa.array(np.full(count, NODES, np.int32)),
        "num_matched": pa.array(reached.sum(axis=1).astype(np.int32)),
        "tpn": numbers(tokens / np.maximum(1, reached.sum(axis=1))),
        "penalty": pa.array(np.zeros(count)),
        "final_score": numbers(reward),
        "channels": lists,
        "answer": named("", tokens % 113),
        "answer_method": pa.repeat("rational", count),
        "message": pa.repeat("", count),
        "scored_by": pa.repeat("server", count),
        "dataset": pa.repeat("default", count),
        "dataset_digest": pa.repeat(DIGEST, count),
        "normal_form_version": pa.repeat("2", count),
        "answer_version": pa.repeat("2", count),
        "server_version": pa.repeat("0.1.0", count),
        "reward_spec": pa.repeat(_REWARD, count),
        "answer_rule": pa.repeat("auto", count),
        "on_undecided": pa.repeat("count_wrong", count),
    }
    arrays = [
        columns[field.name].cast(field.type)
        if field.name in columns
        else pa.nulls(count, field.type)
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
