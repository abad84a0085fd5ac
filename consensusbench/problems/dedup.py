"""Which problems of several sources are kept, decided when all have been seen.

Three things cannot be told from one row: that its text comes again, that it comes with another
answer, that a test source has it too.  So every problem is counted first
(:meth:`ProblemCensus.count`), and judged when all have been (:meth:`ProblemCensus.judge`).

Digests of texts are remembered, not texts: some 400 bytes a problem, 0.4 GB for a million.

What is decided does not depend on the order of rows.  Of several problems of one text the one
is kept whose source was named first and, within it, whose id has the smallest digest: a
choice without meaning that a reordered source makes again.  Only where one id stands for two
texts the one that was read first is kept.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import IO

from consensusbench.problems.sources import SourceInput, digest, read_source, rough_key, text_key
from consensuspr.data import OnError, Problem, Row, open_writer, problem_to_row
from consensuspr.errors import InputError
from consensuspr.scoring.answers import AnswerVerifier


class Fate(StrEnum):
    """What becomes of a problem."""

    WRITTEN = "written"
    REPEATED = "repeated"
    CONFLICTING = "conflicting"
    LEAKED = "leaked"
    SAME_ID = "same id"


@dataclass(frozen=True, slots=True)
class Sighting:
    """What is looked at of one problem.

    Attributes:
        text: digest of its text key.
        rough: digest of its rough key.
        is_test: whether it belongs to a test split.
        problem_id: its id.
        ground_truth: its answer.
        source: place of its source among those named.
    """

    text: bytes
    rough: bytes
    is_test: bool
    problem_id: str
    ground_truth: str
    source: int

    @property
    def rank(self) -> tuple[int, bytes]:
        """Among problems of one text, the smallest is kept."""
        return self.source, digest(self.problem_id)


def sighting(problem: Problem, source: int) -> Sighting:
    """Return what the census looks at; the problem has a text and a ground truth."""
    assert problem.ground_truth is not None
    key = text_key(problem.problem)
    return Sighting(
        digest(key),
        digest(rough_key(key)),
        problem.split == "test",
        problem.problem_id,
        problem.ground_truth,
        source,
    )


@dataclass(slots=True)
class _Text:
    """What is known of one text on one side of the split."""

    ground_truth: str
    kept: tuple[int, bytes]
    conflicting: bool = False
    written: bool = False


class ProblemCensus:
    """Counts problems, then judges them.

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
        self._rough_test: dict[bytes, Sighting] = {}
        self._ids: set[bytes] = set()
        self.conflicting_texts = 0

    def count(self, seen: Sighting) -> bool:
        """Take note of a problem.

        Returns:
            Whether it may be the one of its text that is kept; if not, its row need not be.
        """
        side = self._test if seen.is_test else self._train
        if seen.is_test:
            self._rough_test.setdefault(seen.rough, seen)
        rank = seen.rank
        text = side.get(seen.text)
        if text is None:
            side[seen.text] = _Text(seen.ground_truth, rank)
            return True
        if not text.conflicting and text.ground_truth != seen.ground_truth:
            text.conflicting = not self._same_answer(text.ground_truth, seen.ground_truth)
            self.conflicting_texts += text.conflicting
        if rank >= text.kept:
            return False
        text.kept = rank
        return True

    def leaked(self, seen: Sighting) -> Sighting | None:
        """Return the test problem that a training problem is a copy of."""
        return None if seen.is_test else self._rough_test.get(seen.rough)

    def judge(self, seen: Sighting, keep_leaked: bool = False) -> Fate:
        """Say what becomes of a problem, once each has been counted; each is judged once."""
        text = (self._test if seen.is_test else self._train)[seen.text]
        if text.conflicting:
            return Fate.CONFLICTING
        if not keep_leaked and self.leaked(seen) is not None:
            return Fate.LEAKED
        if text.written or seen.rank != text.kept:
            return Fate.REPEATED
        # Another text under the same id: nobody could tell the two apart by it.
        own_id = digest(seen.problem_id)
        if own_id in self._ids:
            return Fate.SAME_ID
        self._ids.add(own_id)
        text.written = True
        return Fate.WRITTEN


# MERGED What became of the problems of each source, in numbers, with the cases that need a look.

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


# MERGED Several sources made into one file of problems: read, judged, written.
#
# Rows wait on disk until the last has been seen; memory holds what the census remembers.  The
# output appears complete or not at all.


@dataclass(frozen=True, slots=True)
class Collection:
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
    collection: Collection, progress: Callable[[int], None] = lambda done: None
) -> SourcesReport:
    """Read the sources and write the problems that are kept.

    Args:
        collection: what and how.
        progress: called with the number of problems read.

    Returns:
        What became of the problems.

    Raises:
        DataError: a file cannot be read, or has a bad row and ``on_error`` is ``stop``.
        InputError: nothing is named, nothing is left, or the output cannot be written.
        HubUnavailable: the hub cannot be reached.
    """
    if not collection.inputs:
        raise InputError("no source is named")
    report = SourcesReport(collection.inputs)
    with AnswerVerifier() as verifier, tempfile.TemporaryFile(prefix="consensusbench-") as spool:
        census = ProblemCensus(lambda one, other: _same_answer(verifier, one, other))
        _spool(collection, census, spool, progress)
        report.conflicting_texts = census.conflicting_texts
        with open_writer(collection.output) as out:
            for problem in _judged(spool, census, report, collection.keep_leaked):
                out.write(problem_to_row(problem))
            if not report.written:
                read = sum(origin.read.rows for origin in report.inputs)
                raise InputError(f"of {read:,} problems read none is left to be written")
    return report


def _same_answer(verifier: AnswerVerifier, one: str, other: str) -> bool:
    """Say whether two ground truths are equal in value; where that stays open, they are not."""
    boxed = rf"\boxed{{{other}}}"
    return verifier.verify(one, boxed, rule="boxed").correct is True


def _spool(
    collection: Collection,
    census: ProblemCensus,
    spool: IO[bytes],
    progress: Callable[[int], None],
) -> None:
    """Count every problem, and put on disk what judging and writing it takes."""
    done = 0
    rule: tuple[str, str] | None = None
    for place, origin in enumerate(collection.inputs):
        for problem in read_source(origin, collection.on_error):
            rule = _one_rule(rule, problem, origin)
            seen = sighting(problem, place)
            may_be_kept = census.count(seen)
            # Pickle is quick, and nobody else sees this file.
            pickle.dump((seen, problem if may_be_kept else None), spool, pickle.HIGHEST_PROTOCOL)
            done += 1
            progress(done)


def _one_rule(
    known: tuple[str, str] | None, problem: Problem, origin: SourceInput
) -> tuple[str, str] | None:
    """Return the answer rule that the problems name so far, and who named it."""
    if problem.answer_rule is None:
        return known
    if known is None:
        return problem.answer_rule, origin.name
    if problem.answer_rule != known[0]:
        raise InputError(
            f"answer_rule {problem.answer_rule!r} of {origin.name} differs from {known[0]!r} "
            f"of {known[1]}; a dataset has one rule"
        )
    return known


def _judged(
    spool: IO[bytes], census: ProblemCensus, report: SourcesReport, keep_leaked: bool
) -> Iterator[Problem]:
    """Yield the problems to be written, in the order in which they were read."""
    spool.seek(0)
    seen: Sighting
    problem: Problem | None
    while True:
        try:
            seen, problem = pickle.load(spool)
        except EOFError:
            return
        fate = census.judge(seen, keep_leaked)
        report.note(seen, fate, census.leaked(seen))
        if fate is Fate.WRITTEN:
            assert problem is not None
            yield problem
