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

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from consensusbench.same_text import digest, rough_key, text_key
from consensuspr.data import Problem


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
