"""What became of the problems of an export, in numbers and in sentences."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from consensusbench.export.selection import LeftOut, Side
from consensuspr.data import ReadReport

# Trainers group validation metrics by data source, which must therefore have a name.
UNNAMED_SOURCE = "consensusbench"


@dataclass(slots=True)
class ExportReport:
    """Counts of one export.

    Attributes:
        read: rows read and bad rows skipped, over all input files.
        without_split: problems that do not say their side, validation datasets apart.
        written: rows by side and data source.
        left_out: problems that were not written, by reason.
        examples: the first problem id of each reason.
        nodes: nodes of the written rows, by side and data source.
        files: what was written, by side.
        nbytes: bytes of the rows in Arrow's memory layout, by side.
    """

    read: ReadReport = field(default_factory=ReadReport)
    without_split: int = 0
    written: dict[Side, Counter[str]] = field(
        default_factory=lambda: {side: Counter() for side in Side}
    )
    nodes: dict[Side, Counter[str]] = field(
        default_factory=lambda: {side: Counter() for side in Side}
    )
    left_out: Counter[LeftOut] = field(default_factory=Counter)
    examples: dict[LeftOut, str] = field(default_factory=dict)
    files: dict[Side, Path] = field(default_factory=dict)
    nbytes: dict[Side, int] = field(default_factory=dict)

    def rows(self, side: Side) -> int:
        """Return how many rows a side has."""
        return self.written[side].total()

    def write(self, side: Side, data_source: str, num_nodes: int) -> None:
        """Count a problem that is written."""
        name = data_source or UNNAMED_SOURCE
        self.written[side][name] += 1
        self.nodes[side][name] += num_nodes

    def leave_out(self, reason: LeftOut, problem_id: str) -> None:
        """Count a problem that is not written."""
        self.left_out[reason] += 1
        self.examples.setdefault(reason, problem_id)

    def left_out_sentence(self) -> str | None:
        """Return one sentence on what is missing from the files; None where nothing is."""
        parts = [
            f"{count:,} {reason.value} (first: {self.examples[reason][:80]!r})"
            for reason, count in self.left_out.items()
        ]
        if self.read.skipped:
            parts.append(f"{self.read.skipped:,} bad rows (first: {self.read.reasons[0]})")
        return f"left out: {'; '.join(parts)}" if parts else None

    def split_sentence(self) -> str | None:
        """Return one sentence on problems whose side was not given; None where all say it."""
        if not self.without_split:
            return None
        return (
            f"{self.without_split:,} problems have no split and count as training problems but "
            "for the --val-fraction: give a test set with --val-dataset"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the counts as plain values."""
        return {
            "rows": {side.value: self.rows(side) for side in Side},
            "by_data_source": {side.value: dict(self.written[side]) for side in Side},
            "left_out": {reason.name.lower(): count for reason, count in self.left_out.items()},
            "without_split": self.without_split,
            "skipped_rows": self.read.skipped,
            "files": {side.value: str(path) for side, path in self.files.items()},
        }
