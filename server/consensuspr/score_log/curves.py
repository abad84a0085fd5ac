"""The score log of a run, added up by step: what training does to Acc, NCR and TPN.

Means are over the samples where a value is known: a sample without nodes has no NCR, one without a
match no TPN (equation 2 of the paper).
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from consensuspr.score_log.reader import LogReader
from consensuspr.scoring.types import Status

logger = logging.getLogger(__name__)


def _mean(total: str, over: str) -> property:
    """Return a sum of a point over a number of samples, None where there are none."""

    def mean(self: CurvePoint) -> float | None:
        return self.sums[total] / self.counts[over] if self.counts[over] else None

    return property(mean)


@dataclass(slots=True)
class CurvePoint:
    """Samples of consecutive steps, both ends included; None where the trainer does not tell."""

    first_step: int | None
    last_step: int | None
    samples: int = 0
    time_s: float = 0.0  # when the last of them was scored, in Unix seconds
    statuses: Counter[str] = field(default_factory=Counter)
    # Of each value: its sum, and the number of samples that have it.
    sums: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: Counter[str] = field(default_factory=Counter)

    def merge(self, other: CurvePoint) -> None:
        """Take in the samples of later steps."""
        self.last_step = other.last_step
        self.samples += other.samples
        self.time_s = max(self.time_s, other.time_s)
        self.statuses.update(other.statuses)
        self.counts.update(other.counts)
        for name, value in other.sums.items():
            self.sums[name] += value

    reward = _mean("reward", "reward")  # penalties included
    num_tokens = _mean("num_tokens", "num_tokens")
    acc = _mean("acc", "acc")
    ncr = _mean("ncr", "ncr")
    ncr_raw = _mean("ncr_raw", "ncr")
    guarded = _mean("guarded", "ncr")  # share whose NCR the guard lowered
    # Grows where nodes are named and not reached.
    ncr_of_wrong = _mean("ncr_of_wrong", "ncr_of_wrong")
    # What wrong answers bring of the mean reward; all others bring the rest.
    reward_from_wrong = _mean("reward_of_wrong", "reward")
    tpn = _mean("tpn", "tpn")

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
    "reward", "acc", "ncr", "ncr_of_wrong", "reward_from_wrong", "tpn", "num_tokens", "failed",
    "ncr_raw", "guarded",
)  # fmt: skip


def read_curve(run: Path, split: str | None) -> list[CurvePoint]:
    """Return a point for each step that a run's score log has samples of.

    May be called while the run goes on.  Steps that a later start has done again count once.
    Samples of several splits that are added up are said in the log.

    Args:
        run: its folder.
        split: only samples whose row says so; None: all.

    Raises:
        InputError: there is no log in it.
    """
    curves = Curves(("split",))
    for batch in LogReader(run, ("split", *NEEDED)).read():
        curves.add(batch)
    splits = curves.values("split")
    if split is None and len(splits) > 1:
        logger.warning(
            "samples of several splits are added up here: %s; --split NAME shows one",
            ", ".join(sorted("none" if one is None else one for one in splits)),
        )
    return curves.points({} if split is None else {"split": [split]})


# Columns of the rows that are added up.
NEEDED = (
    "step", "time", "status", "reward", "final_score", "acc", "ncr", "ncr_raw", "guard",
    "tpn", "num_tokens",
)  # fmt: skip


class Curves:
    """Samples added up by step and by labels, so that a curve of some of them is at hand.

    Args:
        labels: columns of text; few distinct values each, since there is a point for each
            combination and step.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = tuple(labels)
        self._points: dict[tuple[Any, ...], CurvePoint] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add samples, which have :data:`NEEDED` and the labels."""
        keys = ("step", *self._labels)
        values = _values(batch)
        others = {name: batch.column(name) for name in ("time", "status", *keys)}
        table = pa.table({**values, **others})
        sums = table.group_by(keys, use_threads=False).aggregate(
            [("time", "max"), *((name, how) for name in values for how in ("sum", "count"))]
        )
        for row in sums.to_pylist():
            point = self._point(row, keys)
            if row["time_max"] is not None:  # files of rollouts have none
                point.time_s = max(point.time_s, row["time_max"].timestamp())
            for name in values:
                point.sums[name] += row[f"{name}_sum"] or 0.0
                point.counts[name] += row[f"{name}_count"]
        statuses = table.group_by((*keys, "status"), use_threads=False).aggregate(
            [([], "count_all")]
        )
        for row in statuses.to_pylist():
            point = self._point(row, keys)
            point.samples += row["count_all"]
            point.statuses[row["status"]] += row["count_all"]

    def _point(self, row: Mapping[str, Any], keys: Sequence[str]) -> CurvePoint:
        key = tuple(row[name] for name in keys)
        if key not in self._points:
            self._points[key] = CurvePoint(key[0], key[0])
        return self._points[key]

    def values(self, label: str) -> set[str | None]:
        """Return the values of a label that samples have."""
        at = 1 + self._labels.index(label)
        return {key[at] for key in self._points}

    def points(self, chosen: Mapping[str, Container[str | None]]) -> list[CurvePoint]:
        """Return a point for each step, of the samples whose labels are among those chosen."""
        wanted = [(at, chosen[name]) for at, name in enumerate(self._labels, 1) if name in chosen]
        merged: dict[int | None, CurvePoint] = {}
        for key, point in list(self._points.items()):
            if all(key[at] in values for at, values in wanted):
                step = key[0]
                merged.setdefault(step, CurvePoint(step, step)).merge(point)
        return [merged[step] for step in sorted(merged, key=lambda step: (step is not None, step))]


def _values(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """Return what is added up of each sample; null where it is not known."""

    def column(name: str) -> pa.Array:
        values = batch.column(name).cast(pa.float64())
        return pc.if_else(pc.is_nan(values), None, values)

    def of_wrong(values: pa.Array) -> pa.Array:
        return pc.if_else(pc.equal(column("acc"), 0.0), values, None)

    reward = pc.coalesce(column("final_score"), column("reward"))
    return {
        **{name: column(name) for name in ("acc", "ncr", "ncr_raw", "tpn", "num_tokens")},
        "reward": reward,
        "reward_of_wrong": of_wrong(reward),
        "ncr_of_wrong": of_wrong(column("ncr")),
        "guarded": pc.less(column("guard"), 1.0).cast(pa.float64()),
    }


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
