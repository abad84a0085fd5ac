"""Datasets and rollouts files read row by row, with faults named or skipped.

``on_error="stop"`` raises at the first bad row.  ``"skip"`` counts it, logs its reason up
to a bound and goes on; damage of the file as a whole always raises, and so does a file in
which no row is good.  Memory stays that of one row (one batch of rows for Parquet), and
for a dataset the set of its ids.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar

from consensuspr.data.formats import Format, open_data
from consensuspr.data.jsonl import read_gzip_jsonl, read_jsonl
from consensuspr.data.parquet import read_parquet
from consensuspr.data.schema import Problem, Row
from consensuspr.data.validation import check_rollout, parse_problem
from consensuspr.errors import DataError, InputError

OnError: TypeAlias = Literal["stop", "skip"]

_log = logging.getLogger(__name__)
_Parsed = TypeVar("_Parsed")

MAX_REASONS = 20


@dataclass(slots=True)
class ReadReport:
    """What became of the rows of a file; filled while it is read.

    Attributes:
        rows: good rows.
        skipped: bad rows that were passed over.
        reasons: the first :data:`MAX_REASONS` faults of skipped rows.
    """

    rows: int = 0
    skipped: int = 0
    reasons: list[DataError] = field(default_factory=list)

    def skip(self, fault: DataError) -> None:
        """Count a bad row and log its reason while there are few."""
        self.skipped += 1
        if len(self.reasons) < MAX_REASONS:
            self.reasons.append(fault)
            _log.warning("skipped %s", fault)
            if len(self.reasons) == MAX_REASONS:
                _log.warning("further bad rows of %s are counted only", fault.path)


def read_problems(
    path: str | os.PathLike[str],
    on_error: OnError = "stop",
    report: ReadReport | None = None,
) -> Iterator[Problem]:
    """Yield the problems of a dataset in file order.

    Args:
        path: JSONL, gzip'd JSONL or Parquet; told apart by content.
        on_error: ``"stop"`` or ``"skip"``.
        report: filled with counts and reasons where given.

    Raises:
        DataError: a bad row with ``"stop"``; a bad file always.  A repeated problem id is
            a bad row; the first one stands.
        InputError: on_error is neither of the two.
    """
    for problem, _ in read_problem_rows(path, on_error, report):
        yield problem


def read_problem_rows(
    path: str | os.PathLike[str],
    on_error: OnError = "stop",
    report: ReadReport | None = None,
) -> Iterator[tuple[Problem, Row]]:
    """Yield each problem with the row it came from, for tools that write the row again."""
    whole = WholeFile()

    def check(row: Row, name: str, line: int) -> tuple[Problem, Row]:
        problem = parse_problem(row, name, line)
        whole.check(problem, name, line)
        return problem, row

    return _checked(path, check, ("problem_id", "nodes"), on_error, report)


def read_rollouts(
    path: str | os.PathLike[str],
    on_error: OnError = "stop",
    report: ReadReport | None = None,
) -> Iterator[Row]:
    """Yield the rows of a rollouts file as plain dicts, unknown columns included.

    Arguments and errors are those of :func:`read_problems`; a problem id may repeat.
    """
    return _checked(path, check_rollout, ("problem_id", "response"), on_error, report)


def scan_rollouts(path: str | os.PathLike[str], on_error: OnError = "stop") -> ReadReport:
    """Read a rollouts file once without keeping a row, and return its counts.

    A command calls this before it starts anything, so that a bad row at the end of a long
    file stops it at once and a progress bar knows its total.
    """
    report = ReadReport()
    for _ in read_rollouts(path, on_error, report):
        pass
    return report


class WholeFile:
    """What the rows of one dataset must agree on: distinct ids and at most one answer rule."""

    def __init__(self) -> None:
        self._line_of: dict[str, int] = {}
        self._rule: tuple[str, int] | None = None

    def check(self, problem: Problem, name: str, line: int) -> None:
        first = self._line_of.setdefault(problem.problem_id, line)
        if first != line:
            shown = problem.problem_id[:80]
            raise DataError(name, line, f"problem_id {shown!r} is already that of line {first}")
        if problem.answer_rule is None:
            return
        if self._rule is None:
            self._rule = (problem.answer_rule, line)
        rule, first = self._rule
        if problem.answer_rule != rule:
            raise DataError(
                name,
                line,
                f"answer_rule {problem.answer_rule!r} differs from {rule!r} of line {first}; "
                "a dataset has one rule",
            )


def _checked(
    path: str | os.PathLike[str],
    check: Callable[[Row, str, int], _Parsed],
    columns: Sequence[str],
    on_error: OnError,
    report: ReadReport | None,
) -> Iterator[_Parsed]:
    if on_error not in ("stop", "skip"):
        raise InputError(f"on_error must be 'stop' or 'skip', got {on_error!r}")
    name = os.fspath(path)
    report = ReadReport() if report is None else report
    yield from check_rows(read_rows(name, columns), name, check, on_error, report)
    refuse_empty(name, report)


def check_rows(
    rows: Iterable[tuple[int, Row | DataError]],
    name: str,
    check: Callable[[Row, str, int], _Parsed],
    on_error: OnError,
    report: ReadReport,
) -> Iterator[_Parsed]:
    """Yield what ``check`` makes of each good row; stop at a bad one, or count it."""
    for line, row in rows:
        try:
            if isinstance(row, DataError):
                raise row
            parsed = check(row, name, line)
        except DataError as fault:
            if on_error == "stop":
                raise
            report.skip(fault)
            continue
        report.rows += 1
        yield parsed


def refuse_empty(name: str, report: ReadReport) -> None:
    """Raise DataError where a file that was read to its end held no good row."""
    if report.rows == 0:
        if report.skipped:
            first = report.reasons[0].reason
            reason = f"has no good row; all {report.skipped} were skipped, the first: {first}"
            raise DataError(name, None, reason)
        raise DataError(name, None, "holds no rows")


def read_rows(name: str, columns: Sequence[str]) -> Iterator[tuple[int, Row | DataError]]:
    """Yield line and row of a file of any format, unchecked, or what makes a line no row.

    Args:
        name: path of the file.
        columns: what Parquet must have.

    Raises:
        DataError: the file as a whole is bad.
    """
    stream, form = open_data(name)
    with stream:
        match form:
            case Format.JSONL:
                yield from read_jsonl(stream, name)
            case Format.GZIP:
                yield from read_gzip_jsonl(stream, name)
            case Format.PARQUET:
                yield from read_parquet(stream, name, columns)
