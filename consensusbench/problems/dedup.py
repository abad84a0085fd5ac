"""Several sources made into one file of problems, each of which is in it once.

Three things cannot be told from one row: that its text comes again, that it comes with another
answer, that a test source has it too.  So every problem is counted first
(:meth:`Deduplicator.count`), and judged when all have been (:meth:`Deduplicator.judge`).  Rows wait
on disk until then; of texts only digests are remembered: some 400 bytes a problem, 0.4 GB for a
million.

What is decided does not depend on the order of rows.  Of several problems of one text the one
is kept whose source was named first and, within it, whose id has the smallest digest: a
choice without meaning that a reordered source makes again.  Only where one id stands for two
texts the one that was read first is kept.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Self

from consensusbench.problems.sources import SourceInput, read_source
from consensusbench.problems.texts import digest, rough_key, text_key
from consensusbench.store import RowSpool
from consensuspr.data import OnError, Problem, Row, open_writer, problem_to_row
from consensuspr.errors import InputError
from consensuspr.scoring.answers import AnswerVerifier

# Cases that are listed; all are counted.
MAX_CASES = 10_000
MAX_ANSWERS = 16


class ProblemStatus(StrEnum):
    """What becomes of a problem."""

    WRITTEN = "written"
    REPEATED = "repeated"
    CONFLICTING = "conflicting"
    LEAKED = "leaked"
    SAME_ID = "same id"


@dataclass(frozen=True, slots=True)
class ProblemKey:
    """What is looked at of one problem; digests stand for its text key and its rough key."""

    text: bytes
    rough: bytes
    is_test: bool
    problem_id: str
    ground_truth: str
    source: int  # its place among those named

    @classmethod
    def of(cls, problem: Problem, source: int) -> Self:
        """Return that of a problem with a text and a ground truth."""
        assert problem.ground_truth is not None
        key = text_key(problem.problem)
        return cls(
            digest(key),
            digest(rough_key(key)),
            problem.split == "test",
            problem.problem_id,
            problem.ground_truth,
            source,
        )

    @property
    def rank(self) -> tuple[int, bytes]:
        """Among problems of one text, the smallest is kept."""
        return self.source, digest(self.problem_id)


@dataclass(slots=True)
class _Text:
    """What is known of one text on one side of the split."""

    ground_truth: str
    kept: tuple[int, bytes]
    conflicting: bool = False
    written: bool = False


class Deduplicator:
    """Counts problems, then judges each.

    Args:
        same_answer: whether two ground truths, written differently, are equal.

    Attributes:
        conflicting_texts: texts counted so far that have more than one answer.
    """

    def __init__(self, same_answer: Callable[[str, str], bool]) -> None:
        self._same_answer = same_answer
        # Apart, so that a training copy's wrong answer takes no problem out of a benchmark.
        self._train: dict[bytes, _Text] = {}
        self._test: dict[bytes, _Text] = {}
        self._rough_test: dict[bytes, ProblemKey] = {}
        self._ids: set[bytes] = set()
        self.conflicting_texts = 0

    def count(self, key: ProblemKey) -> bool:
        """Take note of a problem.

        Returns:
            Whether it may be the one of its text that is kept; if not, its row need not be.
        """
        side = self._test if key.is_test else self._train
        if key.is_test:
            self._rough_test.setdefault(key.rough, key)
        rank = key.rank
        text = side.get(key.text)
        if text is None:
            side[key.text] = _Text(key.ground_truth, rank)
            return True
        if not text.conflicting and text.ground_truth != key.ground_truth:
            text.conflicting = not self._same_answer(text.ground_truth, key.ground_truth)
            self.conflicting_texts += text.conflicting
        if rank >= text.kept:
            return False
        text.kept = rank
        return True

    def leaked(self, key: ProblemKey) -> ProblemKey | None:
        """Return the test problem that a training problem is a copy of."""
        return None if key.is_test else self._rough_test.get(key.rough)

    def judge(self, key: ProblemKey, keep_leaked: bool = False) -> ProblemStatus:
        """Say what becomes of a problem, once each has been counted; each is judged once."""
        text = (self._test if key.is_test else self._train)[key.text]
        if text.conflicting:
            return ProblemStatus.CONFLICTING
        if not keep_leaked and self.leaked(key) is not None:
            return ProblemStatus.LEAKED
        if text.written or key.rank != text.kept:
            return ProblemStatus.REPEATED
        # Another text under the same id: nobody could tell the two apart by it.
        own_id = digest(key.problem_id)
        if own_id in self._ids:
            return ProblemStatus.SAME_ID
        self._ids.add(own_id)
        text.written = True
        return ProblemStatus.WRITTEN


@dataclass(slots=True)
class Conflict:
    """A text that comes with more than one answer."""

    # Each answer with the first problem id that has it, at most 16.
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
        statuses: what became of the good rows of each.
        conflicts: texts with several answers, by digest; the first 10,000.
        leaks: training problems that are in a test source; the first 10,000.
        leaked: how many, by training and test source.
        spoilt: the test problems that they are copies of.
        first_leaks: the first of each such pair.
        conflicting_texts: texts with several answers.
        written: problems in the output.
    """

    inputs: Sequence[SourceInput]
    statuses: list[Counter[ProblemStatus]] = field(init=False)
    conflicts: dict[tuple[bool, bytes], Conflict] = field(default_factory=dict)
    leaks: list[Leak] = field(default_factory=list)
    leaked: Counter[tuple[str, str]] = field(default_factory=Counter)
    spoilt: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    first_leaks: dict[tuple[str, str], Leak] = field(default_factory=dict)
    conflicting_texts: int = 0
    written: int = 0

    def __post_init__(self) -> None:
        self.statuses = [Counter() for _ in self.inputs]

    def note(self, key: ProblemKey, status: ProblemStatus, test_copy: ProblemKey | None) -> None:
        """Count one judged problem; ``test_copy`` is the test problem that it is a copy of."""
        self.statuses[key.source][status] += 1
        self.written += status is ProblemStatus.WRITTEN
        if status is ProblemStatus.CONFLICTING:
            self._note_conflict(key)
        if test_copy is not None and status in (ProblemStatus.LEAKED, ProblemStatus.WRITTEN):
            self._note_leak(key, test_copy)

    def _note_conflict(self, key: ProblemKey) -> None:
        place = (key.is_test, key.text)
        conflict = self.conflicts.get(place)
        if conflict is None:
            if len(self.conflicts) >= MAX_CASES:
                return
            conflict = self.conflicts[place] = Conflict()
        conflict.sources.add(self.inputs[key.source].name)
        if len(conflict.answers) < MAX_ANSWERS:
            conflict.answers.setdefault(key.ground_truth, key.problem_id)

    def _note_leak(self, key: ProblemKey, test_copy: ProblemKey) -> None:
        source, test_source = (self.inputs[place].name for place in (key.source, test_copy.source))
        leak = Leak(
            key.problem_id,
            source,
            key.ground_truth,
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
                    **{status.name.lower(): statuses[status] for status in ProblemStatus},
                }
                for origin, statuses in zip(self.inputs, self.statuses, strict=True)
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
            "leaks": [asdict(leak) for leak in self.leaks],
        }


@dataclass(frozen=True, slots=True)
class ProblemCollection:
    """What to collect, and how.

    Attributes:
        inputs: the sources; of a text that several have, the first named one's is kept.
        output: file of problems, its format by the suffix.
        keep_leaked: keep training problems that are in a test source too.
        on_error: what a bad row does.
    """

    inputs: Sequence[SourceInput]
    output: str | os.PathLike[str]
    keep_leaked: bool = False
    on_error: OnError = "stop"


def collect_problems(
    collection: ProblemCollection, progress: Callable[[int], None] = lambda done: None
) -> SourcesReport:
    """Read the sources, write the problems that are kept and say what became of all.

    Args:
        collection: what and how.
        progress: called with the number of problems read.

    Raises:
        DataError: a file cannot be read, or has a bad row and ``on_error`` is ``stop``.
        InputError: nothing is named, nothing is left, or the output cannot be written.
        HubUnavailable: the hub cannot be reached.
    """
    if not collection.inputs:
        raise InputError("no source is named")
    report = SourcesReport(collection.inputs)
    spool: RowSpool[tuple[ProblemKey, Problem | None]] = RowSpool()
    with AnswerVerifier() as verifier, spool:
        dedup = Deduplicator(lambda one, other: _same_answer(verifier, one, other))
        for done, (key, problem) in enumerate(_read(collection), 1):
            spool.add((key, problem if dedup.count(key) else None))
            progress(done)
        report.conflicting_texts = dedup.conflicting_texts
        with open_writer(collection.output) as out:
            for key, kept in spool:
                status = dedup.judge(key, collection.keep_leaked)
                report.note(key, status, dedup.leaked(key))
                if status is ProblemStatus.WRITTEN:
                    assert kept is not None
                    out.write(problem_to_row(kept))
            if not report.written:
                read = sum(origin.read.rows for origin in report.inputs)
                raise InputError(f"of {read:,} problems read none is left to be written")
    return report


def _same_answer(verifier: AnswerVerifier, one: str, other: str) -> bool:
    """Say whether two ground truths are equal in value; where that stays open, they are not."""
    boxed = rf"\boxed{{{other}}}"
    return verifier.verify(one, boxed, rule="boxed").correct is True


def _read(collection: ProblemCollection) -> Iterator[tuple[ProblemKey, Problem]]:
    """Yield the problems of all sources.

    Raises:
        InputError: two of them name different answer rules.
    """
    rule: tuple[str, str] | None = None
    for place, origin in enumerate(collection.inputs):
        for problem in read_source(origin, collection.on_error):
            if problem.answer_rule is not None:
                rule = rule or (problem.answer_rule, origin.name)
                if problem.answer_rule != rule[0]:
                    raise InputError(
                        f"answer_rule {problem.answer_rule!r} of {origin.name} differs from "
                        f"{rule[0]!r} of {rule[1]}; a dataset has one rule"
                    )
            yield ProblemKey.of(problem, place), problem
