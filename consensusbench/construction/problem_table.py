"""The problems of a build: listed in a file, or found in the rollouts' own columns.

Listed problems have the last word: text, ground truth, source and split are the file's, and a
row whose ground truth reads otherwise is only counted, because two sets that use one id for two
problems must not go unnoticed.  Found problems have what their rows say; where rows of one
problem differ in text or ground truth, nobody can tell which is right, and the problem is
excluded by name.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

from consensusbench.construction.values import Excluded
from consensuspr.data import OnError, Problem, ReadReport, Row, read_problems

_SHOWN = 60


@dataclass(slots=True)
class Disagreement:
    """Rows that say something else than what is used.

    Attributes:
        count: how many.
        first: one sentence on the first.
    """

    count: int = 0
    first: str = ""

    def note(self, sentence: str) -> None:
        """Count one."""
        self.count += 1
        self.first = self.first or sentence


@dataclass(slots=True)
class Disagreements:
    """What rows disagree on without harm to the dataset; a person should know of it."""

    ground_truths: Disagreement = field(default_factory=Disagreement)
    data_sources: Disagreement = field(default_factory=Disagreement)


class ProblemTable(Protocol):
    """Problems by number, counted from 0 in order of first appearance."""

    disagreements: Disagreements

    def __len__(self) -> int: ...

    def number_of(self, row: Row) -> int | None:
        """Return the number of the problem that a rollout belongs to, None where unknown."""
        ...

    def numbers(self) -> Iterable[int]:
        """Return all numbers in the order of the dataset."""
        ...

    def get(self, number: int) -> Problem | Excluded:
        """Return a problem without nodes, or why it cannot be used."""
        ...


class ListedProblems:
    """The problems of a file, in its order; on disk but for their ids.

    Args:
        path: a dataset or a file of problems; nodes that it has are passed over.
        on_error: what a bad row does.
        report: filled with the counts of rows.
        folder: where they lie, without a name.
        split: put into each problem, where given.

    Raises:
        DataError: the file is bad.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        on_error: OnError,
        report: ReadReport,
        folder: Path,
        split: Literal["train", "test"] | None = None,
    ) -> None:
        self.disagreements = Disagreements()
        self._numbers: dict[str, int] = {}
        self._offsets = array("q")
        self._ground_truths = bytearray()  # a digest each; zeros where there is none
        self._file = tempfile.TemporaryFile(prefix="problems-", dir=folder)  # noqa: SIM115
        for problem in read_problems(path, on_error, report):
            self._numbers[problem.problem_id] = len(self._offsets)
            self._offsets.append(self._file.tell())
            self._ground_truths += _digest(problem.ground_truth)
            bare = replace(problem, nodes=(), split=split or problem.split)
            pickle.dump(bare, self._file, protocol=pickle.HIGHEST_PROTOCOL)
        self._file.flush()

    def __len__(self) -> int:
        return len(self._offsets)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def number_of(self, row: Row) -> int | None:
        problem_id = row["problem_id"]
        number = self._numbers.get(problem_id)
        if number is not None:
            said = _digest(row.get("ground_truth"))
            known = self._ground_truths[number * len(said) : (number + 1) * len(said)]
            if known != said and any(known) and any(said):
                self._disagree(number, row)
        return number

    def _disagree(self, number: int, row: Row) -> None:
        found = self.disagreements.ground_truths
        sentence = ""
        if not found.count:
            known = self.get(number).ground_truth
            sentence = (
                f"{_quoted(row['ground_truth'])} instead of {_quoted(known)} for problem "
                f"{row['problem_id']!r}"
            )
        found.note(sentence)

    def numbers(self) -> Iterable[int]:
        return range(len(self))

    def get(self, number: int) -> Problem:
        self._file.seek(self._offsets[number])
        problem: Problem = pickle.load(self._file)
        return problem


class _Said:
    """The first and the last, in the order of the alphabet, of what rows say of one thing."""

    __slots__ = ("first", "last")

    def __init__(self) -> None:
        self.first: str | None = None
        self.last: str | None = None

    def add(self, text: str | None) -> None:
        if not text or text == self.first or text == self.last:
            return
        if self.first is None or text < self.first:
            self.first = text
        if self.last is None or text > self.last:
            self.last = text

    def differ(self) -> bool:
        """Say whether rows differ otherwise than in white space."""
        return self.first != self.last and _plain(self.first) != _plain(self.last)


class _Found:
    """What the rollouts of one problem say of it."""

    __slots__ = ("data_source", "ground_truth", "problem")

    def __init__(self) -> None:
        self.problem = _Said()
        self.ground_truth = _Said()
        self.data_source = _Said()


class FoundProblems:
    """The problems that rollouts bring along, in the order of their ids.

    Their texts stay in memory: where there are millions of problems, list them in a file.

    Args:
        split: put into each problem, where given.
    """

    def __init__(self, split: Literal["train", "test"] | None = None) -> None:
        self.disagreements = Disagreements()
        self._split = split
        self._numbers: dict[str, int] = {}
        self._found: list[_Found] = []
        self._ids: list[str] = []

    def __len__(self) -> int:
        return len(self._ids)

    def number_of(self, row: Row) -> int | None:
        problem_id = row["problem_id"]
        number = self._numbers.get(problem_id)
        if number is None:
            number = self._numbers[problem_id] = len(self._ids)
            self._ids.append(problem_id)
            self._found.append(_Found())
        found = self._found[number]
        found.problem.add(row.get("problem"))
        found.ground_truth.add(row.get("ground_truth"))
        found.data_source.add(row.get("data_source"))
        return number

    def numbers(self) -> Iterable[int]:
        return sorted(range(len(self)), key=self._ids.__getitem__)

    def get(self, number: int) -> Problem | Excluded:
        found, problem_id = self._found[number], self._ids[number]
        truth = found.ground_truth.first
        problem = Problem(
            problem_id=problem_id,
            ground_truth=truth if truth and not truth.isspace() else None,
            data_source=found.data_source.first or "",
            problem=found.problem.first or "",
            split=self._split,
        )
        for what, said in (("ground_truth", found.ground_truth), ("problem", found.problem)):
            if said.differ():
                return Excluded(
                    problem,
                    "conflicting_rows",
                    f"{what} is {_quoted(said.first)} in one row and {_quoted(said.last)} in "
                    "another",
                )
        if found.data_source.differ():
            first, last = found.data_source.first, found.data_source.last
            self.disagreements.data_sources.note(
                f"{_quoted(first)} and {_quoted(last)} for problem {problem_id!r}"
            )
        return problem


def _digest(text: str | None) -> bytes:
    """Return 8 bytes that stand for a text without white space around it; zeros for none."""
    if text is None or not text.strip():
        return bytes(8)
    return hashlib.blake2b(text.strip().encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _plain(text: str | None) -> list[str]:
    return (text or "").split()


def _quoted(text: str | None) -> str:
    return repr(text if text is None or len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
