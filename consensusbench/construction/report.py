"""What a build did, in numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from consensusbench.construction.counts import ProblemCounts, RolloutCounts
from consensusbench.construction.outputs import OutputPaths
from consensusbench.construction.problem_table import Disagreements
from consensuspr.data import Row


@dataclass(slots=True)
class Seconds:
    """How long what took.

    Attributes:
        reading: of the inputs, on the clock.
        verifying: of answers, on the clock; overlaps with the work on problems.
        extracting: of all problems together, in whatever process.
        refining: of all problems together, in whatever process.
        total: on the clock.
    """

    reading: float = 0.0
    verifying: float = 0.0
    extracting: float = 0.0
    refining: float = 0.0
    total: float = 0.0

    def to_json(self) -> Row:
        """Return the times as plain values."""
        names = ("reading", "verifying", "extracting", "refining", "total")
        return {name: round(getattr(self, name), 3) for name in names}


@dataclass(slots=True)
class BuildReport:
    """Counts, times and outputs of one command.

    Attributes:
        paths: what was written.
        problems: what became of problems and nodes.
        rollouts: what became of rollouts; None where none were read.
        skipped_rows: bad rows of the file of problems or candidates.
        disagreements: of rollouts with the problems; None where none were read.
        resumed: problems whose extraction an earlier run had left.
        digest: of the dataset, None where none was written.
        provenance: how; the same for all problems of this command.
        seconds: how long.
    """

    paths: OutputPaths
    problems: ProblemCounts = field(default_factory=ProblemCounts)
    rollouts: RolloutCounts | None = None
    skipped_rows: int = 0
    disagreements: Disagreements | None = None
    resumed: int = 0
    digest: str | None = None
    provenance: Row = field(default_factory=dict)
    seconds: Seconds = field(default_factory=Seconds)

    def warnings(self) -> list[str]:
        """Return sentences on what a person should look at."""
        said = self.disagreements
        found = []
        if said is not None and said.ground_truths.count:
            who = _many(said.ground_truths.count, "rollout names", "rollouts name")
            found.append(
                f"{who} another ground truth than the file of problems, which counts "
                f"(first: {said.ground_truths.first})"
            )
        if said is not None and said.data_sources.count:
            who = _many(said.data_sources.count, "problem has", "problems have")
            found.append(
                f"{who} rollouts of several data sources, of which the first in the alphabet is "
                f"taken (first: {said.data_sources.first})"
            )
        if self.skipped_rows:
            who = _many(self.skipped_rows, "bad row", "bad rows")
            found.append(f"{who} of problems {_was(self.skipped_rows)} skipped")
        if self.rollouts is not None and self.rollouts.skipped:
            skipped = self.rollouts.skipped
            who = _many(skipped, "bad row", "bad rows")
            found.append(f"{who} of rollouts {_was(skipped)} skipped")
        return found

    def to_json(self) -> Row:
        """Return everything as plain values."""

        def named(path: Path | None) -> str | None:
            return None if path is None else str(path)

        return {
            "output": named(self.paths.dataset),
            "audit": named(self.paths.audit),
            "candidates": named(self.paths.candidates),
            "digest": self.digest,
            "problems": self.problems.to_json(),
            "rollouts": None if self.rollouts is None else self.rollouts.to_json(),
            "skipped_rows": self.skipped_rows,
            "resumed": self.resumed,
            "warnings": self.warnings(),
            "provenance": self.provenance,
            "seconds": self.seconds.to_json(),
        }


def _many(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _was(count: int) -> str:
    return "was" if count == 1 else "were"
