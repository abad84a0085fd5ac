"""Rollouts read once: how often each node is hit by rollouts of its own problem, and a sample.

Memory is that of the dataset's index, of one counter a node, of one bounded sample a source and
of two numbers a rollout.
"""

from __future__ import annotations

import heapq
import os
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from consensusbench.probes.report import DenseRollout, DensityFigures
from consensusbench.probes.sample import RolloutSample
from consensuspr.cli.file_scoring import chunks
from consensuspr.core import match_batch
from consensuspr.data import OnError, ReadReport, Row, read_rollouts
from consensuspr.scoring import DatasetIndex

KEPT_DENSEST: Final = 10
# A hit in a dozen characters is a bare answer, not a rollout that was stuffed.
MIN_STUFFED_CHARS: Final = 200


@dataclass(slots=True)
class OwnHits:
    """The rollouts of one problem against its own nodes.

    Attributes:
        rollouts: looked at.
        hits: (nodes,) of them that hit each node.
    """

    rollouts: int
    hits: npt.NDArray[np.int64]


@dataclass(slots=True)
class _Density:
    ncr: float = 0.0
    chars: array[float] = field(default_factory=lambda: array("d"))
    per_1000_chars: array[float] = field(default_factory=lambda: array("d"))
    per_1000_tokens: array[float] = field(default_factory=lambda: array("d"))

    def figures(self) -> DensityFigures:
        rollouts = len(self.chars)
        tokens = self.per_1000_tokens
        return DensityFigures(
            rollouts=rollouts,
            ncr=self.ncr / rollouts,
            median_chars=float(np.median(self.chars)),
            median_per_1000_chars=float(np.median(self.per_1000_chars)),
            p99_per_1000_chars=float(np.percentile(self.per_1000_chars, 99)),
            median_per_1000_tokens=float(np.median(tokens)) if tokens else None,
            p99_per_1000_tokens=float(np.percentile(tokens, 99)) if tokens else None,
        )


class RolloutSurvey:
    """What rollouts say about the nodes of a dataset.

    Attributes:
        own: by problem id; problems without nodes and without rollouts are not in it.
        sample: rollouts by the data source of their problem.
        read: rows read and skipped, over all files.
        unknown: rollouts whose problem the dataset does not have.
    """

    def __init__(self, index: DatasetIndex, threads: int = 0) -> None:
        self.own: dict[str, OwnHits] = {}
        self.sample = RolloutSample()
        self.read = ReadReport()
        self.unknown = 0
        self._index = index
        self._threads = threads
        self._density: dict[str, _Density] = {}
        self._densest: list[tuple[float, int, DenseRollout]] = []
        self._seen = 0

    def density(self) -> dict[str, DensityFigures]:
        """Return how densely rollouts hit their own nodes, by source."""
        return {source: one.figures() for source, one in self._density.items()}

    def densest(self) -> tuple[DenseRollout, ...]:
        """Return the rollouts with the most hits for their length, the first the densest."""
        return tuple(one for _, _, one in sorted(self._densest, key=lambda kept: -kept[0]))

    def take(self, rows: Sequence[Row]) -> None:
        """Count a chunk of rows."""
        known = []
        for row in rows:
            self._seen += 1
            entry = self._index.entry(row["problem_id"])
            if entry is None:
                self.unknown += 1
            elif row["response"]:
                self.sample.add(entry.data_source, entry.problem_id, row["response"])
                if entry.num_nodes:
                    known.append((row, entry, self._seen))
        matched = match_batch(
            [entry.matcher for _, entry, _ in known],
            [row["response"] for row, _, _ in known],
            threads=self._threads,
        )
        for at, (row, entry, number) in enumerate(known):
            self._count(row, entry.data_source, matched.matched(at), number)

    def _count(self, row: Row, source: str, hit: npt.NDArray[np.bool_], number: int) -> None:
        own = self.own.get(row["problem_id"])
        if own is None:
            own = self.own[row["problem_id"]] = OwnHits(0, np.zeros(len(hit), dtype=np.int64))
        own.rollouts += 1
        own.hits += hit
        chars = len(row["response"])
        hits = int(hit.sum())
        ncr = hits / len(hit)
        density = self._density.setdefault(source, _Density())
        density.ncr += ncr
        density.chars.append(chars)
        per_1000 = 1000 * hits / chars
        density.per_1000_chars.append(per_1000)
        num_tokens = row.get("num_tokens")
        if num_tokens is not None and num_tokens > 0:
            density.per_1000_tokens.append(1000 * hits / num_tokens)
        if hits and chars >= MIN_STUFFED_CHARS:
            name = row.get("rollout_id") or f"row {number}"
            dense = DenseRollout(row["problem_id"], name, source, ncr, chars, per_1000)
            # Earlier rows win a tie, so that the same files give the same list.
            heapq.heappush(self._densest, (per_1000, -number, dense))
            if len(self._densest) > KEPT_DENSEST:
                heapq.heappop(self._densest)


def survey_rollouts(
    paths: Iterable[str | os.PathLike[str]],
    index: DatasetIndex,
    *,
    threads: int = 0,
    on_error: OnError = "stop",
    progress: Callable[[int], None] = lambda done: None,
) -> RolloutSurvey:
    """Read rollouts files once.

    Args:
        paths: the files.
        index: of the dataset.
        threads: of the scan, 0 for all cores.
        on_error: what a bad row does.
        progress: told how many rollouts are done.

    Raises:
        DataError: a file is bad, or a row of it and ``on_error`` is ``"stop"``.
    """
    survey = RolloutSurvey(index, threads)
    done = 0
    for path in paths:
        report = ReadReport()
        for chunk in chunks(read_rollouts(path, on_error, report)):
            survey.take(chunk)
            done += len(chunk)
            progress(done)
        survey.read.rows += report.rows
        survey.read.skipped += report.skipped
        survey.read.reasons += report.reasons
    return survey
