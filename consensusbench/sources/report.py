"""What became of the problems of each source, in numbers, with the cases that need a look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from consensusbench.sources.census import Fate, Sighting
from consensusbench.sources.reading import SourceInput
from consensuspr.data import Row

# Cases that are listed; all are counted.
MAX_CASES = 10_000
MAX_ANSWERS = 16


@dataclass(slots=True)
class Conflict:
    """A text that comes with more than one answer.

    Attributes:
        answers: each answer with the first problem id that has it, at most 16.
        sources: names of the sources that have the text.
    """

    answers: dict[str, str] = field(default_factory=dict)
    sources: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Leak:
    """A training problem that is in a test source too."""

    problem_id: str
    source: str
    ground_truth: str
    test_problem_id: str
    test_source: str
    test_ground_truth: str


@dataclass(slots=True)
class SourcesReport:
    """Counts by source, conflicts and leaks.

    Attributes:
        inputs: the sources as they were named, with what was read of each.
        fates: what became of the good rows of each.
        conflicts: texts with several answers, by digest; the first 10,000.
        leaks: training problems that are in a test source; the first 10,000.
        leaked: how many, by training and test source.
        spoilt: the test problems that they are copies of.
        first_leaks: the first of each such pair.
        conflicting_texts: texts with several answers.
        written: problems in the output.
    """

    inputs: Sequence[SourceInput]
    fates: list[Counter[Fate]] = field(init=False)
    conflicts: dict[tuple[bool, bytes], Conflict] = field(default_factory=dict)
    leaks: list[Leak] = field(default_factory=list)
    leaked: Counter[tuple[str, str]] = field(default_factory=Counter)
    spoilt: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    first_leaks: dict[tuple[str, str], Leak] = field(default_factory=dict)
    conflicting_texts: int = 0
    written: int = 0

    def __post_init__(self) -> None:
        self.fates = [Counter() for _ in self.inputs]

    def note(self, seen: Sighting, fate: Fate, test_copy: Sighting | None) -> None:
        """Count one judged problem.

        Args:
            seen: the problem.
            fate: what became of it.
            test_copy: the test problem that it is a copy of, leaked or kept all the same.
        """
        self.fates[seen.source][fate] += 1
        self.written += fate is Fate.WRITTEN
        if fate is Fate.CONFLICTING:
            self._note_conflict(seen)
        if test_copy is not None and fate in (Fate.LEAKED, Fate.WRITTEN):
            self._note_leak(seen, test_copy)

    def _note_conflict(self, seen: Sighting) -> None:
        key = (seen.is_test, seen.text)
        conflict = self.conflicts.get(key)
        if conflict is None:
            if len(self.conflicts) >= MAX_CASES:
                return
            conflict = self.conflicts[key] = Conflict()
        conflict.sources.add(self.inputs[seen.source].name)
        if len(conflict.answers) < MAX_ANSWERS:
            conflict.answers.setdefault(seen.ground_truth, seen.problem_id)

    def _note_leak(self, seen: Sighting, test_copy: Sighting) -> None:
        source, test_source = (self.inputs[place].name for place in (seen.source, test_copy.source))
        leak = Leak(
            seen.problem_id,
            source,
            seen.ground_truth,
            test_copy.problem_id,
            test_source,
            test_copy.ground_truth,
        )
        self.leaked[source, test_source] += 1
        self.spoilt.setdefault((source, test_source), set()).add(test_copy.problem_id)
        self.first_leaks.setdefault((source, test_source), leak)
        if len(self.leaks) < MAX_CASES:
            self.leaks.append(leak)

    def to_json(self) -> Row:
        """Return everything as plain values."""
        return {
            "written": self.written,
            "sources": [
                {
                    "name": origin.name,
                    "path": None if origin.path is None else str(origin.path),
                    "hub_id": origin.hub and origin.hub.hub_id,
                    "hub_config": origin.hub and origin.hub.config,
                    "hub_split": origin.hub and origin.hub.split,
                    "revision": origin.hub and origin.hub.revision,
                    "limit": origin.limit,
                    "read": origin.read.rows,
                    "bad_rows": origin.read.skipped,
                    **{fate.name.lower(): fates[fate] for fate in Fate},
                }
                for origin, fates in zip(self.inputs, self.fates, strict=True)
            ],
            "conflicting_texts": self.conflicting_texts,
            "conflicts": [
                {
                    "answers": [
                        {"ground_truth": answer, "problem_id": problem_id}
                        for answer, problem_id in conflict.answers.items()
                    ],
                    "sources": sorted(conflict.sources),
                }
                for conflict in self.conflicts.values()
            ],
            "leaked": [
                {
                    "source": source,
                    "test_source": test_source,
                    "rows": count,
                    "test_problems": len(self.spoilt[source, test_source]),
                }
                for (source, test_source), count in self.leaked.items()
            ],
            "leaks": [
                {name: getattr(leak, name) for name in Leak.__slots__} for leak in self.leaks
            ],
        }
