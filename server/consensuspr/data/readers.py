"""Datasets and rollouts files read row by row, with faults named or skipped.

**Formats** are decided by the first bytes, because names lie.

**Faults.** ``on_error="stop"`` yields nothing after the first bad row: it reads the rest for more
bad rows and raises one error for all.  ``"skip"`` counts a bad row, logs its reason up to a bound
and goes on.  Damage of the file as a whole (a gzip stream that ends early) always raises, and so
does a file without a good row.  So a row that cannot be read travels as its error.

**Memory** stays that of one row (one batch of rows for Parquet), and for a dataset the set of its
ids.  :func:`read_unparsed` and :func:`parse_rollouts` spread a file over processes.
"""

from __future__ import annotations

import gzip
import io
import json
import logging
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NoReturn, TypeAlias, TypeVar

from consensuspr.data.schema import (
    PROBLEMS_FOR_ROLLOUTS,
    ROLLOUTS_FOR_PROBLEMS,
    Problem,
    Row,
    check_rollout,
    parse_problem,
)
from consensuspr.errors import DataError, InputError, no_such_path

if TYPE_CHECKING:
    import pyarrow.parquet as pq


OnError: TypeAlias = Literal["stop", "skip"]
# Line or row number from 1, and a line of JSON, a row of Parquet, or why it is neither.
Unparsed: TypeAlias = tuple[int, bytes | Row | DataError]

# Required in Parquet.
PROBLEM_COLUMNS = ("problem_id", "nodes")
ROLLOUT_COLUMNS = ("problem_id", "response")
# Faults of skipped rows that are kept and logged.
MAX_REASONS = 20
# One row is held in memory; 100 MB responses exist, gzip bombs of one endless line too.
MAX_LINE_BYTES = 256 << 20
# Consecutive blank lines, of which a small gzip can hold gigabytes.
MAX_BLANK_BYTES = 1 << 20
# A batch of rollouts of 1 MB each is 256 MB of Python strings; of the usual 10 KB, 2.5 MB.
BATCH_ROWS = 256
# Field metadata of a Parquet column whose values are JSON text because Arrow has no type for them.
JSON_MARK = {b"consensuspr": b"json"}
# A prepared dataset is not read here, but a caller may name one by mistake.
ARROW_MAGIC = b"ARROW1"
OLD_INDEX_MAGIC = b"CPRINDEX"
PREPARED_SUFFIX = ".index"
# Of tables: they are neither read nor written, because their cells hold no lists.
TABLE_SUFFIXES = (".csv", ".tsv", ".xlsx")

_UNSUPPORTED = (
    (b"\x28\xb5\x2f\xfd", "is zstd-compressed"),
    (b"BZh", "is bzip2-compressed"),
    (b"\xfd7zXZ\x00", "is xz-compressed"),
    (b"PK\x03\x04", "is a zip archive"),
    (ARROW_MAGIC, "is a prepared dataset or another Arrow IPC file"),
    (OLD_INDEX_MAGIC, "is a prepared dataset of an earlier version"),
    (b"\xff\xfe", "is UTF-16 text"),
    (b"\xfe\xff", "is UTF-16 text"),
)
_BOM = b"\xef\xbb\xbf"
_BUFFER_BYTES = 1 << 18

_Parsed = TypeVar("_Parsed")

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class ReadReport:
    """Counts of good and skipped rows of a file, and the first faults; filled while it is read."""

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
    """Yield the problems of a dataset in file order, and fill ``report``.

    Raises DataError for a bad file always, for bad rows with ``"stop"``.  A repeated problem id is
    a bad row; the first one stands.
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

    return _checked(path, check, PROBLEM_COLUMNS, on_error, report)


def read_rollouts(
    path: str | os.PathLike[str],
    on_error: OnError = "stop",
    report: ReadReport | None = None,
) -> Iterator[Row]:
    """Yield the rows of a rollouts file, unknown columns included; see :func:`read_problems`."""
    return _checked(path, check_rollout, ROLLOUT_COLUMNS, on_error, report)


def scan_rollouts(path: str | os.PathLike[str], on_error: OnError = "stop") -> ReadReport:
    """Read a rollouts file once without keeping a row, and return its counts."""
    report = ReadReport()
    for _ in read_rollouts(path, on_error, report):
        pass
    return report


class WholeFile:
    """Checks that the rows of one dataset have distinct ids and at most one answer rule."""

    def __init__(self) -> None:
        self._line_of: dict[str, int] = {}
        self._rule: tuple[str, int] | None = None

    def check(self, problem: Problem, name: str, line: int) -> None:
        first = self._line_of.setdefault(problem.problem_id, line)
        if first != line:
            shown = problem.problem_id[:80]
            raise DataError(name, line, f"problem_id {shown!r} repeats that of line {first}")
        if problem.answer_rule is None:
            return
        self._rule = self._rule or (problem.answer_rule, line)
        rule, first = self._rule
        if problem.answer_rule != rule:
            reason = f"answer_rule {problem.answer_rule!r} differs from {rule!r} of line {first}"
            raise DataError(name, line, f"{reason}; a dataset has one rule")


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
    """Yield the result of ``check`` for each good row; stop at a bad one, or count it.

    To stop raises a DataError that lists all bad rows.
    """
    faults: list[DataError] = []
    try:
        for line, row in rows:
            try:
                if isinstance(row, DataError):
                    raise row
                parsed = check(row, name, line)
            except DataError as fault:
                if on_error == "stop":
                    faults.append(fault)
                else:
                    report.skip(fault)
                continue
            if not faults:
                report.rows += 1
                yield parsed
    except DataError as damage:
        if not faults:
            raise
        faults.append(damage)
    if faults:
        raise DataError.together(name, faults)


def refuse_empty(name: str, report: ReadReport) -> None:
    """Raise DataError if a file that was read to its end held no good row."""
    if report.rows == 0:
        if report.skipped:
            first = report.reasons[0].reason
            reason = f"has no good row; all {report.skipped} were skipped, the first: {first}"
            raise DataError(name, None, reason)
        raise DataError(name, None, "holds no rows")


def read_rows(name: str, columns: Sequence[str]) -> Iterator[tuple[int, Row | DataError]]:
    """Yield line and row of a file, unchecked, or the fault of a line; for Parquet with columns."""
    for line, content in read_unparsed(name, columns):
        yield line, _parse(content, name, line)


def read_unparsed(
    path: str | os.PathLike[str], columns: Sequence[str] = ROLLOUT_COLUMNS
) -> Iterator[Unparsed]:
    """Yield the rows of a file in order, in bounded memory; ``columns`` must be in Parquet."""
    name = os.fspath(path)
    stream, form = open_data(name)
    with stream:
        match form:
            case Format.JSONL:
                yield from _read_lines(stream, name)
            case Format.GZIP:
                with gzip.GzipFile(fileobj=stream) as packed:
                    yield from _read_lines(io.BufferedReader(packed, _BUFFER_BYTES), name)
            case Format.PARQUET:
                yield from _read_parquet(stream, name, columns)


def parse_rollouts(
    rows: Iterable[Unparsed], path: str, on_error: OnError, report: ReadReport
) -> Iterator[Row]:
    """Parse and check some rows of a file; ``path`` is its name in messages."""
    parsed = ((line, _parse(content, path, line)) for line, content in rows)
    yield from check_rows(parsed, path, check_rollout, on_error, report)


class Format(Enum):
    """The formats that are read."""

    JSONL = "JSONL"
    GZIP = "gzip'd JSONL"
    PARQUET = "Parquet"


def open_data(path: str | os.PathLike[str]) -> tuple[BinaryIO, Format]:
    """Open a data file and return its format; nothing is consumed.  Raises DataError."""
    name = os.fspath(path)
    try:
        stream = io.BufferedReader(io.FileIO(name), _BUFFER_BYTES)
        try:
            return stream, _format(name, stream.peek(8)[:8])
        except BaseException:
            stream.close()
            raise
    except FileNotFoundError:
        reason = no_such_path(name).removeprefix(f"{name}: ")
        raise DataError(name, None, reason) from None
    except IsADirectoryError:
        raise DataError(name, None, "is a directory, not a file") from None
    except OSError as error:
        raise DataError(name, None, f"cannot be read: {error.strerror}") from error


def _format(name: str, head: bytes) -> Format:
    if not head:
        raise DataError(name, None, "is empty")
    if head.startswith(b"\x1f\x8b"):
        return Format.GZIP
    if head.startswith(b"PAR1"):
        return Format.PARQUET
    if name.lower().endswith(TABLE_SUFFIXES):
        raise DataError(name, None, "is a table; JSONL, gzip'd JSONL and Parquet are read")
    for magic, reason in _UNSUPPORTED:
        if head.startswith(magic):
            raise DataError(name, None, f"{reason}; JSONL, gzip'd JSONL and Parquet are read")
    return Format.JSONL


def _parse(content: bytes | Row | DataError, path: str, line: int) -> Row | DataError:
    if isinstance(content, bytes):
        try:
            return _row(content)
        except ValueError as error:
            return DataError(path, line, str(error))
    if isinstance(content, DataError):  # the reader may know the file by another path
        return DataError(path, line, content.reason)
    return content


def _read_lines(stream: BinaryIO, path: str) -> Iterator[tuple[int, bytes | DataError]]:
    """Yield the lines but blank ones, without a leading byte order mark."""
    line = blank = 0
    while True:
        line += 1
        try:
            raw = stream.readline(MAX_LINE_BYTES + 1)
            if len(raw) > MAX_LINE_BYTES:
                # A small gzip may hold gigabytes of it.
                reason = f"is longer than {MAX_LINE_BYTES} bytes; the file is not read on"
                raise DataError(path, line, reason)
        except EOFError:
            raise DataError(path, line, "the gzip data ends before its end mark") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise DataError(path, line, f"the gzip data is damaged: {error}") from None
        except OSError as error:
            raise DataError(path, line, f"cannot be read: {error.strerror}") from error
        if not raw:
            return
        if line == 1:
            raw = raw.removeprefix(_BOM)
        if raw and not raw.isspace():
            blank = 0
            yield line, raw
            continue
        blank += len(raw)
        if blank > MAX_BLANK_BYTES:
            reason = f"more than {MAX_BLANK_BYTES} bytes of blank lines end here"
            raise DataError(path, line, f"{reason}; the file is not read on")


def _row(raw: bytes) -> Row:
    """Return the object on one line, or raise ValueError with the reason."""
    try:
        value = _DECODER.decode(raw.decode("utf-8").rstrip())
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 (byte {error.start + 1} of the line)") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error.msg} (column {error.colno})") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    if type(value) is not dict:
        raise ValueError(f"holds {_NAMES[type(value)]}, not an object")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"is not JSON: {name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"is not JSON: the number {text[:40]} is too large")
    return value


def _whole(text: str) -> int:
    # Python parses no more digits than this.
    if len(text) > 4300:
        raise ValueError(f"is not JSON: a number of {len(text)} digits is too long")
    return int(text)


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite, parse_int=_whole)
_NAMES = {
    list: "a list",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a truth value",
    type(None): "null",
}


def _read_parquet(
    stream: BinaryIO, path: str, required: Sequence[str]
) -> Iterator[tuple[int, Row | DataError]]:
    """Yield rows in bounded memory: row groups of dataframe libraries hold a whole data set."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(stream, pre_buffer=False, buffer_size=1 << 20) as file:
            _check_columns(file, path, required)
            decoders = _json_decoders(pa, file.schema_arrow)
            # Threads would each keep memory of their own, for columns that decode in no time.
            for batch in file.iter_batches(batch_size=BATCH_ROWS, use_threads=False):
                for row in batch.to_pylist():
                    number += 1
                    yield number, _decode(row, decoders)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise DataError(path, None, f"is not readable Parquet: {reason}") from error
    finally:
        # Arrow keeps freed memory, several times the size of a batch.
        pa.default_memory_pool().release_unused()


def _check_columns(file: pq.ParquetFile, path: str, required: Sequence[str]) -> None:
    columns: list[str] = file.schema_arrow.names
    for name in required:
        if name not in columns:
            if name == "nodes" and "response" in columns:
                raise DataError(path, None, ROLLOUTS_FOR_PROBLEMS)
            if name == "response" and "nodes" in columns:
                raise DataError(path, None, PROBLEMS_FOR_ROLLOUTS)
            shown = ", ".join(columns[:12]) + (", …" if len(columns) > 12 else "")
            raise DataError(path, None, f"has no column {name!r}; its columns are {shown}")


def _json_decoder(pa: Any, field: Any) -> Callable[[Any], Any] | None:
    """Return what decodes JSON text in the values of a column, None if they hold none.

    Besides our own mark, it is Arrow's JSON type, which the library ``datasets`` makes of objects
    whose keys differ.
    """
    kind = field.type
    marked = JSON_MARK.items() <= (field.metadata or {}).items()
    if marked or getattr(kind, "extension_name", "") == "arrow.json":
        return json.loads
    if pa.types.is_list(kind):
        element = _json_decoder(pa, kind.value_field)
        return element and (lambda values: [v if v is None else element(v) for v in values])
    if pa.types.is_struct(kind):
        inner = _json_decoders(pa, kind)
        return (lambda value: _decode(value, inner)) if inner else None
    return None


def _json_decoders(pa: Any, fields: Iterable[Any]) -> dict[str, Callable[[Any], Any]]:
    """Return the decoders of the fields that need one."""
    found = ((each.name, _json_decoder(pa, each)) for each in fields)
    return {name: decode for name, decode in found if decode is not None}


def _decode(row: Row, decoders: dict[str, Callable[[Any], Any]]) -> Row:
    for name, decode in decoders.items():
        if row[name] is not None:
            row[name] = decode(row[name])
    return row
