"""The score log of a run, added up by step: what training does to Acc, NCR and TPN.

Means are over the samples whose value is known: a sample without nodes has no NCR, one without a
match no TPN (equation 2 of the paper).
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from consensuspr.errors import InputError
from consensuspr.score_log.formulas import mixed_formulas
from consensuspr.score_log.reader import LogReader
from consensuspr.scoring.types import Status

logger = logging.getLogger(__name__)

# Each mean: the value that is added up, and the one whose samples are counted.
_MEANS = {
    "reward": ("reward", "reward"),  # penalties included
    "acc": ("acc", "acc"),
    "ncr": ("ncr", "ncr"),
    "ncr_of_right": ("ncr_of_right", "ncr_of_right"),
    "ncr_of_wrong": ("ncr_of_wrong", "ncr_of_wrong"),  # grows if nodes are named, not reached
    "reward_from_wrong": ("reward_of_wrong", "reward"),  # the part that wrong answers earn
    "tpn": ("tpn", "tpn"),
    "num_tokens": ("num_tokens", "num_tokens"),
    "ncr_raw": ("ncr_raw", "ncr"),
    "guarded": ("guarded", "ncr"),  # share whose NCR the guard lowered
}
FIGURES = (*_MEANS, "failed")
# Columns of the rows that are added up.
_COLUMNS = (
    "step", "split", "status", "reward", "final_score", "acc", "ncr", "ncr_raw", "guard", "tpn",
    "num_tokens", "reward_spec",
)  # fmt: skip


@dataclass(slots=True)
class CurvePoint:
    """Samples of consecutive steps, both ends included; None if the trainer gives no step.

    The means of :data:`FIGURES` are attributes too, None without a sample that has the value.

    Attributes:
        sums, counts: of each value its sum, and the number of samples that have it.
    """

    first_step: int | None
    last_step: int | None
    samples: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    sums: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: Counter[str] = field(default_factory=Counter)

    def __getattr__(self, name: str) -> float | None:
        if name not in _MEANS:
            raise AttributeError(name)
        total, over = _MEANS[name]
        return self.sums[total] / self.counts[over] if self.counts[over] else None

    @property
    def failed(self) -> int:
        """Samples with another status than OK."""
        return self.samples - self.statuses[Status.OK]

    def merge(self, later: CurvePoint) -> None:
        """Take in the samples of later steps."""
        self.last_step = later.last_step
        self.samples += later.samples
        self.statuses.update(later.statuses)
        self.counts.update(later.counts)
        for name, value in later.sums.items():
            self.sums[name] += value

    def to_json(self) -> dict[str, Any]:
        """Return all figures by name."""
        names = ("first_step", "last_step", "samples", *FIGURES)
        return {name: getattr(self, name) for name in names} | {"statuses": dict(self.statuses)}


def read_curve(run: Path, split: str | None) -> list[CurvePoint]:
    """Return a point for each step that a run's score log has samples of.

    May be called while the run goes on.  Logs a warning if it adds up samples of several splits or
    of several reward formulas.

    Args:
        run: its folder.
        split: only samples of this split; None: all.

    Raises:
        InputError: there is no log in it, or it has only other splits.
    """
    points: dict[int | None, CurvePoint] = {}
    splits: set[str | None] = set()
    formulas: Counter[str | None] = Counter()
    for batch in LogReader(run, _COLUMNS).read():
        splits.update(batch.column("split").unique().to_pylist())
        if split is not None:
            batch = batch.filter(pc.equal(batch.column("split"), split))
        for each in batch.column("reward_spec").value_counts():
            formulas[each["values"].as_py()] += each["counts"].as_py()
        values = _values(batch)
        table = pa.table({**values, "step": batch["step"], "status": batch["status"]})
        functions = [(name, how) for name in values for how in ("sum", "count")]
        # By status too, so that one pass counts statuses.
        # In one thread: floats are added in the order of the rows.
        groups = table.group_by(["step", "status"], use_threads=False)
        for row in groups.aggregate([*functions, ([], "count_all")]).to_pylist():
            step = row["step"]
            point = points.setdefault(step, CurvePoint(step, step))
            point.samples += row["count_all"]
            point.statuses[row["status"]] += row["count_all"]
            for name in values:
                point.sums[name] += row[f"{name}_sum"] or 0.0
                point.counts[name] += row[f"{name}_count"]
    names = ", ".join(sorted("none" if name is None else name for name in splits))
    if split is None and len(splits) > 1:
        logger.warning(
            "the means mix samples of several splits (%s); choose one with --split NAME", names
        )
    if splits and not points:
        raise InputError(f"{run}: the score log has no sample of split {split!r}, only of {names}")
    if mixed := mixed_formulas(formulas):
        logger.warning(
            "the means mix samples of %d reward formulas: %s", len(mixed), "; ".join(mixed)
        )
    return [points[step] for step in sorted(points, key=lambda step: (step is not None, step))]


def _values(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """Return the values of each sample that are added up; null if one is not known."""

    def column(name: str) -> pa.Array:
        values = batch.column(name).cast(pa.float64())
        return pc.if_else(pc.is_nan(values), None, values)

    def where(acc: float, values: pa.Array) -> pa.Array:
        return pc.if_else(pc.equal(column("acc"), acc), values, None)

    reward = pc.coalesce(column("final_score"), column("reward"))
    return {
        **{name: column(name) for name in ("acc", "ncr", "ncr_raw", "tpn", "num_tokens")},
        "reward": reward,
        "reward_of_wrong": where(0.0, reward),
        "ncr_of_right": where(1.0, column("ncr")),
        "ncr_of_wrong": where(0.0, column("ncr")),
        "guarded": pc.less(column("guard"), 1.0).cast(pa.float64()),
    }


def coarsen(points: Sequence[CurvePoint], at_most: int) -> list[CurvePoint]:
    """Return the points with neighbours put together, so that there are ``at_most`` of them."""
    number = min(at_most, len(points))
    coarse: list[CurvePoint] = []
    for at, point in enumerate(points):
        if at * number // len(points) == len(coarse):  # the first one of the next part
            coarse.append(CurvePoint(point.first_step, None))
        coarse[-1].merge(point)
    return coarse
