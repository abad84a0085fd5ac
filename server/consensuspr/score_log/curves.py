"""The score log of a run, added up by step: what training does to Acc, NCR and TPN.

Means are over the samples where a value is known: a sample without nodes has no NCR, one without a
match no TPN (equation 2 of the paper).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from consensuspr.score_log.reader import LogReader
from consensuspr.scoring.types import Status

logger = logging.getLogger(__name__)


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
    time_s: float = 0.0  # when the last of them was scored, in Unix seconds
    statuses: Counter[str] = field(default_factory=Counter)
    _sums: Counter[str] = field(default_factory=Counter)

    def add(
        self, samples: int, time_s: float, statuses: Mapping[str, int], sums: Mapping[str, float]
    ) -> None:
        """Count samples of these steps."""
        self.samples += samples
        self.time_s = max(self.time_s, time_s)
        self.statuses.update(statuses)
        self._sums.update(sums)

    def merge(self, other: CurvePoint) -> None:
        """Take in the samples of later steps."""
        self.last_step = other.last_step
        self.samples += other.samples
        self.time_s = max(self.time_s, other.time_s)
        self.statuses.update(other.statuses)
        self._sums.update(other._sums)

    reward = _ratio("reward", "with reward")  # penalties included
    num_tokens = _ratio("tokens", "with tokens")
    acc = _ratio("acc", "with acc")
    ncr = _ratio("ncr", "with ncr")
    ncr_raw = _ratio("ncr raw", "with ncr")
    guarded = _ratio("guarded", "with ncr")  # share whose NCR the guard lowered
    # Grows where nodes are named and not reached.
    ncr_of_wrong = _ratio("ncr of wrong", "wrong")
    # What wrong answers bring of the mean reward; all others bring the rest.
    reward_from_wrong = _ratio("reward of wrong", "with reward")
    tpn = _ratio("tpn", "with tpn")

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
        for key, samples, time_s, statuses, sums in _by_step(batch, self._labels):
            point = self._points.get(key)
            if point is None:
                point = self._points[key] = CurvePoint(key[0], key[0])
            point.add(samples, time_s, statuses, sums)

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


def _by_step(
    batch: pa.RecordBatch, labels: Sequence[str]
) -> Iterator[tuple[tuple[Any, ...], int, float, Counter[str], dict[str, float]]]:
    """Yield for each step and combination of labels: key, samples, last time, statuses, sums."""

    def numbers(column: Any) -> npt.NDArray[np.float64]:
        found: npt.NDArray[np.float64] = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        return found

    def codes(name: str) -> tuple[npt.NDArray[np.int64], list[Any]]:
        encoded = batch.column(name).dictionary_encode("encode")
        return encoded.indices.to_numpy(), encoded.dictionary.to_pylist()

    if not batch.num_rows:
        return
    reward = numbers(pc.coalesce(batch.column("final_score"), batch.column("reward")))
    acc, ncr, raw, guard, tpn, tokens = (
        numbers(batch.column(name))
        for name in ("acc", "ncr", "ncr_raw", "guard", "tpn", "num_tokens")
    )
    wrong = np.where((acc == 0) & ~np.isnan(ncr), ncr, np.nan)
    # Each value, and the name of its sum and of the number of samples that have it.
    values = (
        ("reward", "with reward", reward),
        ("reward of wrong", "", np.where(acc == 0, reward, np.nan)),
        ("tokens", "with tokens", tokens),
        ("acc", "with acc", acc),
        ("ncr", "with ncr", ncr),
        ("ncr raw", "", raw),
        ("guarded", "", np.where(np.isnan(guard), np.nan, guard < 1.0)),
        ("ncr of wrong", "wrong", wrong),
        ("tpn", "with tpn", tpn),
    )
    columns = [codes(name) for name in ("step", *labels)]
    together = np.zeros(batch.num_rows, np.int64)
    for at, known in columns:
        together = together * len(known) + at
    _, firsts, rows = np.unique(together, return_index=True, return_inverse=True)
    keys = [tuple(known[at[first]] for at, known in columns) for first in firsts.tolist()]
    times_s = np.zeros(len(keys))
    np.maximum.at(
        times_s, rows, np.nan_to_num(numbers(batch.column("time").cast(pa.int64()))) / 1e6
    )
    at, known = codes("status")
    counts = np.bincount(rows * len(known) + at, minlength=len(keys) * len(known))
    statuses = [
        Counter({status: int(n) for status, n in zip(known, of, strict=True) if n})
        for of in counts.reshape(len(keys), len(known))
    ]
    sums: list[dict[str, float]] = [{} for _ in keys]
    for name, of, column in values:
        has = ~np.isnan(column)
        added = np.bincount(rows, np.where(has, column, 0.0), len(keys))
        counted = np.bincount(rows, has, len(keys))
        for place, step_sums in enumerate(sums):
            step_sums[name] = float(added[place])
            if of:
                step_sums[of] = float(counted[place])
    for place, key in enumerate(keys):
        number = statuses[place].total()
        yield key, number, float(times_s[place]), statuses[place], sums[place]


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
