"""Several sources made into one file in which each problem occurs once.

Problems are counted first and judged when all have been, because repetitions, conflicts and
leaks show only then.  Rows wait on disk; of texts only digests are kept, some 400 bytes a problem.

The result does not depend on the order of rows.  Of several problems of one text, the one of the
source that was named first is kept, and within it the one whose id has the smallest digest.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from consensusbench.problems.sources import SourceInput, read_source
from consensusbench.problems.texts import digest, rough_key, text_key
from consensuspr.data import OnError, Problem, Row, open_writer, problem_to_row
from consensuspr.errors import InputError
from consensuspr.scoring.answers import AnswerVerifier

# Cases that are listed; all are counted.
MAX_CASES: Final = 10_000


class ProblemStatus(StrEnum):
    """The status of a problem after all have been read."""

    WRITTEN = "written"
    REPEATED = "repeated"
    CONFLICTING = "conflicting"
    LEAKED = "leaked"
    SAME_ID = "same id"


@dataclass(frozen=True, slots=True)
class ProblemKey:
    """One problem, with digests of its text key and its rough key."""

    text: bytes
    rough: bytes
    is_test: bool
    problem_id: str
    ground_truth: str
    source: int  # its place among those named

    @classmethod
    def of(cls, problem: Problem, source: int) -> Self:
        """Return the key of a problem with a text and a ground truth."""
        assert problem.ground_truth is not None
        key = text_key(problem.problem)
        is_test = problem.split == "test"
        truth = problem.ground_truth
        return cls(digest(key), digest(rough_key(key)), is_test, problem.problem_id, truth, source)

    @property
    def rank(self) -> tuple[int, bytes]:
        """Of the problems of one text, the smallest rank is kept."""
        return self.source, digest(self.problem_id)


@dataclass(slots=True)
class _Text:
    """One text on one side of the split."""

    ground_truth: str
    kept: tuple[int, bytes]
    conflicting: bool = False
    written: bool = False


class Deduplicator:
    """Counts problems, then judges each.

    Args:
        same_answer: whether two ground truths, written differently, are equal.
    """

    def __init__(self, same_answer: Callable[[str, str], bool]) -> None:
        self._same_answer = same_answer
        # By (is_test, text): a training copy's wrong answer takes no problem out of a benchmark.
        self._texts: dict[tuple[bool, bytes], _Text] = {}
        self._rough_test: dict[bytes, ProblemKey] = {}
        self._ids: set[bytes] = set()
        self.conflicting_texts = 0

    def count(self, key: ProblemKey) -> bool:
        """Count a problem; return whether it may be the one of its text that is kept."""
        if key.is_test:
            self._rough_test.setdefault(key.rough, key)
        text = self._texts.get((key.is_test, key.text))
        if text is None:
            self._texts[key.is_test, key.text] = _Text(key.ground_truth, key.rank)
            return True
        if not text.conflicting and text.ground_truth != key.ground_truth:
            text.conflicting = not self._same_answer(text.ground_truth, key.ground_truth)
            self.conflicting_texts += text.conflicting
        if key.rank >= text.kept:
            return False
        text.kept = key.rank
        return True

    def leaked(self, key: ProblemKey) -> ProblemKey | None:
        """Return the test problem that a training problem is a copy of."""
        return None if key.is_test else self._rough_test.get(key.rough)

    def judge(self, key: ProblemKey) -> ProblemStatus:
        """Return the status of a problem, once all have been counted."""
        text = self._texts[key.is_test, key.text]
        if text.conflicting:
            return ProblemStatus.CONFLICTING
        if self.leaked(key) is not None:
            return ProblemStatus.LEAKED
        if text.written or key.rank != text.kept:
            return ProblemStatus.REPEATED
        own_id = digest(key.problem_id)
        if own_id in self._ids:
            return ProblemStatus.SAME_ID
        self._ids.add(own_id)
        text.written = True
        return ProblemStatus.WRITTEN


class SourcesReport:
    """Counts of the good rows of each source by status, and the cases that a person may look at.

    Attributes:
        conflicting_texts: texts with several answers.
        leaked: rows by pair of training and test source.
        cases: conflicting and leaked problems; rows of one text have the same ``text``.
    """

    def __init__(self, inputs: Sequence[SourceInput]) -> None:
        self.inputs = inputs
        self.statuses: list[Counter[ProblemStatus]] = [Counter() for _ in inputs]
        self.conflicting_texts = 0
        self.leaked: Counter[tuple[str, str]] = Counter()
        self.cases: list[Row] = []

    @property
    def written(self) -> int:
        """Problems in the output."""
        return sum(statuses[ProblemStatus.WRITTEN] for statuses in self.statuses)

    def note(self, key: ProblemKey, status: ProblemStatus, test_copy: ProblemKey | None) -> None:
        """Count one judged problem; ``test_copy`` is the test problem that it is a copy of."""
        self.statuses[key.source][status] += 1
        case = {"status": status.value, "problem_id": key.problem_id, "text": key.text.hex()}
        case |= {"source": self.inputs[key.source].name, "ground_truth": key.ground_truth}
        if status is ProblemStatus.LEAKED and test_copy is not None:
            test_source = self.inputs[test_copy.source].name
            self.leaked[case["source"], test_source] += 1
            case |= {"test_source": test_source, "test_problem_id": test_copy.problem_id}
        elif status is not ProblemStatus.CONFLICTING:
            return
        if len(self.cases) < MAX_CASES:
            self.cases.append(case)

    def to_json(self) -> Row:
        """Return everything as plain values."""
        return {
            "written": self.written,
            "sources": [
                origin.to_json()
                | {status.name.lower(): statuses[status] for status in ProblemStatus}
                for origin, statuses in zip(self.inputs, self.statuses, strict=True)
            ],
            "conflicting_texts": self.conflicting_texts,
            "leaked": [
                {"source": source, "test_source": test_source, "rows": count}
                for (source, test_source), count in self.leaked.items()
            ],
            "cases": self.cases,
        }


def collect_problems(
    inputs: Sequence[SourceInput],
    output: str | os.PathLike[str],
    on_error: OnError = "stop",
    progress: Callable[[int], None] = lambda done: None,
) -> SourcesReport:
    """Read sources, write the problems that are kept, and report on all.

    Raises:
        DataError: a file cannot be read, or has a bad row and ``on_error`` is ``stop``.
        InputError: no problem is left, or the output cannot be written.
        HubUnavailable: the hub cannot be reached.
    """
    report = SourcesReport(inputs)
    with AnswerVerifier() as verifier, tempfile.TemporaryFile() as spool:

        def same_answer(first: str, second: str) -> bool:
            return verifier.verify(first, rf"\boxed{{{second}}}", rule="boxed").correct is True

        dedup = Deduplicator(same_answer)
        read = 0
        for read, (key, problem) in enumerate(_read(inputs, on_error), 1):
            pickle.dump((key, problem if dedup.count(key) else None), spool)
            progress(read)
        report.conflicting_texts = dedup.conflicting_texts
        spool.seek(0)
        with open_writer(output) as out:
            for _ in range(read):
                key, kept = pickle.load(spool)
                status = dedup.judge(key)
                report.note(key, status, dedup.leaked(key))
                if status is ProblemStatus.WRITTEN:
                    assert kept is not None
                    out.write(problem_to_row(kept))
            if not report.written:
                raise InputError(f"all {read:,} problems were left out, nothing was written")
    return report


def _read(inputs: Sequence[SourceInput], on_error: OnError) -> Iterator[tuple[ProblemKey, Problem]]:
    rule: tuple[str, str] | None = None
    for place, origin in enumerate(inputs):
        for problem in read_source(origin, on_error):
            if problem.answer_rule is not None:
                rule = rule or (problem.answer_rule, origin.name)
                if problem.answer_rule != rule[0]:
                    raise InputError(
                        f"answer_rule {problem.answer_rule!r} of {origin.name} differs from "
                        f"{rule[0]!r} of {rule[1]}; a dataset has one rule"
                    )
            yield ProblemKey.of(problem, place), problem
