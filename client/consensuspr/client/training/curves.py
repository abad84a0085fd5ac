"""The score logs of a run, added up by step: what training does to Acc, NCR and TPN.

Means are over the samples where a value is known: a sample without nodes has no NCR.  TPN is
all tokens over all matched nodes of a step's samples that have matches (equation 2 summed), so
that it exists wherever one sample has a match.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from consensuspr.errors import DataError
from consensuspr.scoring.types import Status

# Statuses under which a verdict on the answer was given.
_WITH_ACC = (Status.OK, Status.ANSWER_UNDECIDED, Status.NO_NODES)


def _ratio(total: str, count: str) -> property:
    """Return one sum of a point over another, None where there is nothing to divide by."""

    def ratio(self: CurvePoint) -> float | None:
        return self._sums[total] / self._sums[count] if self._sums[count] else None

    return property(ratio)


@dataclass(slots=True)
class CurvePoint:
    """Samples of consecutive steps, both ends included; None where the trainer does not tell."""

    first_step: int | None
    last_step: int | None
    samples: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    _sums: Counter[str] = field(default_factory=Counter)

    def add(self, row: dict[str, Any]) -> None:
        """Count a row of the log."""
        status = str(row["status"])
        self.samples += 1
        self.statuses[status] += 1
        sums = self._sums
        sums["samples"] += 1
        sums["reward"] += row["reward"]
        sums["tokens"] += row["num_tokens"]
        if status in _WITH_ACC:
            sums["with acc"] += 1
            sums["acc"] += row["acc"]
        if row["num_nodes"] > 0:
            sums["with ncr"] += 1
            sums["ncr"] += row["ncr"]
            # Of runs before there was a guard: it has lowered nothing.
            sums["ncr raw"] += row.get("ncr_raw", row["ncr"])
            sums["guarded"] += row.get("guard", 1.0) < 1.0
            if status in _WITH_ACC and row["acc"] == 0:
                sums["wrong"] += 1
                sums["ncr of wrong"] += row["ncr"]
        if row["num_matched"] > 0:
            sums["matched"] += row["num_matched"]
            sums["tokens of matched"] += row["num_tokens"]

    def merge(self, other: CurvePoint) -> None:
        """Take in the samples of later steps."""
        self.last_step = other.last_step
        self.samples += other.samples
        self.statuses.update(other.statuses)
        self._sums.update(other._sums)

    reward = _ratio("reward", "samples")  # penalties included
    num_tokens = _ratio("tokens", "samples")
    acc = _ratio("acc", "with acc")
    ncr = _ratio("ncr", "with ncr")
    ncr_raw = _ratio("ncr raw", "with ncr")
    guarded = _ratio("guarded", "with ncr")  # share whose NCR the guard lowered
    # Grows where nodes are named and not reached.
    ncr_of_wrong = _ratio("ncr of wrong", "wrong")
    tpn = _ratio("tokens of matched", "matched")

    @property
    def failed(self) -> int:
        """Samples with another status than OK."""
        return self.samples - self.statuses[Status.OK]

    def to_json(self) -> dict[str, Any]:
        """Return all figures by name."""
        return {
            "first_step": self.first_step,
            "last_step": self.last_step,
            "samples": self.samples,
            **{name: getattr(self, name) for name in FIGURES},
            "statuses": dict(self.statuses),
        }


FIGURES = (
    "reward", "acc", "ncr", "ncr_of_wrong", "tpn", "num_tokens", "failed", "ncr_raw", "guarded",
)  # fmt: skip


def read_curve(folder: Path, split: str | None) -> list[CurvePoint]:
    """Return a point for each step that a folder of score logs has samples of.

    Reads line by line, and may be called while the run goes on: the last line of a file may be
    half written and is left out then.  Where a run was started again with the same folder, its
    steps count instead of those that an earlier start had made.

    Args:
        folder: the ``score_log`` of a run.
        split: only samples whose row says so; None: all.

    Raises:
        DataError: there is no log in it, or a line is no row of one.
    """
    files = [_File(path) for path in sorted(folder.glob("scores-*.jsonl"))]
    if not files:
        raise DataError(str(folder), None, "holds no score log (scores-*.jsonl)")
    points: dict[int | None, CurvePoint] = {}
    for file, ends in _superseded(files):
        for row in file.rows():
            step = row["step"]
            if split not in (None, row["split"]) or _done_again(step, ends.get(row["split"])):
                continue
            point = points.get(step)
            if point is None:
                point = points[step] = CurvePoint(step, step)
            point.add(row)
    return [points[step] for step in sorted(points, key=lambda step: (step is not None, step))]


def coarsen(points: Iterable[CurvePoint], at_most: int) -> list[CurvePoint]:
    """Return the points with neighbours put together, so that there are ``at_most`` of them."""
    points = list(points)
    width = -(-len(points) // at_most)
    coarse = []
    for start in range(0, len(points), max(1, width)):
        first, *others = points[start : start + width]
        merged = CurvePoint(first.first_step, first.last_step)
        for point in (first, *others):
            merged.merge(point)
        coarse.append(merged)
    return coarse


Steps: TypeAlias = dict[str | None, int]


class _File:
    """The log of one process: when it was written, and its first step of each split."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.began, self.ended = math.inf, -math.inf
        self.first_steps: Steps = {}
        for row in self.rows():
            self.began = min(self.began, row["time"])
            self.ended = max(self.ended, row["time"])
            step, split = row["step"], row["split"]
            if step is not None:
                self.first_steps[split] = min(step, self.first_steps.get(split, step))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows that are whole."""
        with self._path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith("\n"):
                    return  # being written, or cut off when its process was killed
                yield _row(line, str(self._path), number)


def _superseded(files: list[_File]) -> Iterator[tuple[_File, Steps]]:
    """Yield each file with the steps, by split, from which on a later start did them again.

    Processes of one start write at the same time; a file that begins after all before it have
    ended belongs to a later one.
    """
    starts: list[list[_File]] = []
    ended = -math.inf
    for file in sorted(files, key=lambda file: file.began):
        if not starts or file.began > ended:
            starts.append([])
        starts[-1].append(file)
        ended = max(ended, file.ended)
    ends: Steps = {}
    for start in reversed(starts):
        for file in start:
            yield file, dict(ends)
        for file in start:
            for split, step in file.first_steps.items():
                ends[split] = min(step, ends.get(split, step))


def _done_again(step: int | None, end: int | None) -> bool:
    return step is not None and end is not None and step >= end


_NUMBERS = ("time", "reward", "acc", "ncr", "num_nodes", "num_matched", "num_tokens")


def _row(line: str, path: str, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
        sound = (
            all(isinstance(row[name], int | float) for name in _NUMBERS)
            and isinstance(row["step"], int | None)
            and {"split", "status"} <= row.keys()
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        sound = False
    if not sound:
        raise DataError(path, number, f"is no row of a score log: {line[:80].strip()!r}")
    return row  # type: ignore[no-any-return]
