"""Where samples come from: score logs, which may grow, and files of scored rollouts.

A source yields its samples in batches of the columns of :data:`LIGHT`, all that lists, curves and
filters need, and reads whole samples later by their places.  A file of scored rollouts is copied to
Parquet first, into a folder that goes when the source is closed: lines of packed JSON could not be
found again one by one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from consensuspr.console import one_line
from consensuspr.data.readers import (
    ROLLOUT_COLUMNS,
    ReadReport,
    check_rows,
    read_rollouts,
    read_rows,
    refuse_empty,
)
from consensuspr.data.schema import Row, check_rollout
from consensuspr.data.writers import arrow_array
from consensuspr.errors import DataError, InputError
from consensuspr.score_log.files import check_range, rows_of_parquet
from consensuspr.score_log.reader import PLACE, LogReader
from consensuspr.score_log.schema import SCHEMA
from consensuspr.scoring.types import CHANNELS, SCORED_TYPES, Status
from consensuspr.server.folders import temporary_folder

# Columns of a score log that are kept of every sample.
FROM_LOG: Final = (
    "key", "time", "step", "epoch", "split", "group_id", "rollout_id", "problem_id",
    "data_source", "response_size", "num_tokens", "status", "reward", "acc", "ncr", "ncr_raw",
    "guard", "num_nodes", "num_matched", "tpn", "penalty", "final_score", "channels", "answer",
    "answer_method", "message", "scored_by", "dataset", "dataset_digest", "reward_spec",
)  # fmt: skip
# Columns that files of rollouts have besides.
OF_FILES: Final = tuple(pa.field(name, pa.string()) for name in ("model", "diagnosis", "problem"))
LIGHT: Final = pa.schema([*(SCHEMA.field(name) for name in FROM_LOG), *OF_FILES, *PLACE])
OTHER: Final = "other"  # further columns of a file, as JSON
WHOLE: Final = pa.schema([*SCHEMA, *OF_FILES, pa.field(OTHER, pa.string())])

# Of the folders of pages under the temporary directory.
FOLDER_PREFIX: Final = "consensuspr-page-"
# Rows of a file, and characters of their texts, that are put into it together.
_ROWS = 4096
_CHARS = 8 << 20


class LogSource:
    """The samples of a score log, while it grows too.

    Args:
        path: the run's folder.
        following: whether the log may begin later.

    Raises:
        InputError: there is no such folder.
    """

    kind: ClassVar[str] = "log"
    grows: ClassVar[bool] = True

    def __init__(self, path: Path, *, following: bool = True) -> None:
        if not path.is_dir():
            raise InputError(f"{path} is no folder")
        self.path = path
        self._reader = LogReader(path, FROM_LOG, following=following, places=True)
        self.run = self._reader.run  # the folder that holds ``scores`` and ``datasets``
        place = self.run.resolve()
        # The default score log of verl's trainers lies in the folder of its run.
        self.place = place.parent if place.name == "score-log" else place
        self.name = self.place.name

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that came since the last call."""
        for batch in self._reader.read():
            for field in OF_FILES:
                batch = batch.append_column(field.name, pa.nulls(batch.num_rows, field.type))
            yield batch.select(LIGHT.names)

    def withdrawn(self) -> dict[str, npt.NDArray[np.int64]]:
        """Return by writer the rows that were yielded and do not count any more, once."""
        gone, self._reader.withdrawn = self._reader.withdrawn, {}
        return gone

    def read_share(self) -> float:
        """Return which part of the log has been read."""
        return self._reader.read_share

    def left_out(self) -> list[str]:
        """Return sentences about files that cannot be read."""
        return list(self._reader.left_out.values())

    def rows_at(self, writer: str, rows: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Return rows by their places."""
        return self._reader.rows_at(writer, rows, columns)

    def close(self) -> None:
        """Nothing is held."""


class FileSource:
    """The samples of a file of scored rollouts, or of such rows.

    Args:
        path: a file that ``consensuspr score`` wrote.
        digest: of the dataset that it was scored with, if known.
        rows: in place of those of the file; read once.

    Raises:
        InputError: there is no such file, or its rows are not scored.
    """

    kind: ClassVar[str] = "file"
    grows: ClassVar[bool] = False

    def __init__(
        self, path: Path, digest: str | None = None, rows: Iterable[Row] | None = None
    ) -> None:
        self.path = path
        self.place = path.resolve()
        self.name = path.name
        self._digest = digest
        self._report = ReadReport()
        self._damage = ""
        self._done = False
        self._given = rows
        try:
            first = None if rows is not None else next(read_rollouts(path, "skip"), None)
        except DataError as error:
            raise InputError(str(error)) from None
        if first is not None and "status" not in first:
            raise InputError(
                f"{path}: its rows have no status, so they are not scored;"
                f" consensuspr score {path} --dataset DATASET --output SCORED does that"
            )
        self._stack = ExitStack()
        self._copy = temporary_folder(FOLDER_PREFIX, self._stack) / "rows.parquet"

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield all good rows, once."""
        if self._done:
            return
        first = 0
        rows = self._rows()
        with pq.ParquetWriter(self._copy, WHOLE, compression="zstd") as out:
            while some := _next_of(rows):
                batch = self._batch_of(some, first)
                out.write_batch(batch)
                numbers = np.arange(first, first + batch.num_rows)
                first += batch.num_rows
                batch = batch.append_column("writer", pa.array(["rows"] * batch.num_rows))
                yield batch.append_column("row", pa.array(numbers)).select(LIGHT.names)
        self._done = True

    def _rows(self) -> Iterator[tuple[int, Row]]:
        """Yield line and row of all rollouts up to where the file as a whole is damaged."""
        name = str(self.path)
        number = 0
        try:
            if self._given is not None:
                for number, row in enumerate(self._given, start=1):
                    yield number, row
                return
            rows = read_rows(name, ROLLOUT_COLUMNS)
            for number, row in check_rows(rows, name, _numbered, "skip", self._report):
                yield number, row
            refuse_empty(name, self._report)
        except DataError as error:
            unit = "row" if error.line is None else "line"
            where = f"after {unit} {number} " if number else ""
            self._damage = f"{error}; all rows {where}are missing, their number is not known"

    def _batch_of(self, rows: Sequence[tuple[int, Row]], first: int) -> pa.RecordBatch:
        """Return rows in the columns of :data:`WHOLE`; one that does not fit there is counted."""
        try:
            return _batch_of(rows, first, self._digest)
        except ValueError as error:
            if len(rows) == 1:
                self._report.skip(DataError(str(self.path), rows[0][0], str(error)))
                return _batch_of([], first, self._digest)
        good: list[tuple[int, Row]] = []
        for row in rows:
            if self._batch_of([row], 0).num_rows:
                good.append(row)
        return _batch_of(good, first, self._digest)

    def read_share(self) -> float:
        """Return which part of the file has been read: none or all."""
        return float(self._done)

    def left_out(self) -> list[str]:
        """Return sentences about rows that cannot be shown."""
        sentences = [self._damage] if self._damage else []
        if number := self._report.skipped:
            reason = self._report.reasons[0]
            many = f"{number:,} rows are left out, among them {reason}"
            sentences.append(f"{reason}; this row is left out" if number == 1 else many)
        return sentences

    def rows_at(self, writer: str, rows: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Return rows by their places."""
        if not self._done:
            raise DataError(str(self.path), None, "is still being read; its texts come then")
        return rows_of_parquet(self._copy, rows, columns)

    def withdrawn(self) -> dict[str, npt.NDArray[np.int64]]:
        """Return nothing: all rows of a file count."""
        return {}

    def close(self) -> None:
        """Remove its copy."""
        self._stack.close()


def _next_of(rows: Iterator[tuple[int, Row]]) -> list[tuple[int, Row]]:
    some: list[tuple[int, Row]] = []
    chars = 0
    for line, row in rows:
        some.append((line, row))
        chars += len(row["response"])
        if len(some) >= _ROWS or chars >= _CHARS:
            break
    return some


def _numbered(row: Row, name: str, line: int) -> tuple[int, Row]:
    return line, check_rollout(row, name, line)


def _batch_of(rows: Sequence[tuple[int, Row]], first: int, digest: str | None) -> pa.RecordBatch:
    """Return rows of scored rollouts, each behind its line, in the columns of :data:`WHOLE`.

    Raises:
        ValueError: a value has another type than its column, or is out of its range.
    """
    columns = []
    try:
        made = [_sample_of(row, at, digest) for at, (_, row) in enumerate(rows, start=first)]
    except TypeError as error:
        raise ValueError(f"matched, channels or status: {error}") from None
    for field in WHOLE:
        try:
            column = arrow_array(pa, [sample.get(field.name) for sample in made], field.type)
            check_range(column, field)
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise ValueError(f"{field.name}: {one_line(str(error), 300)}") from None
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=WHOLE)


# Columns of a file that stand in the sample under their own names.
_SAME = {"problem_id", "rollout_id", "data_source", "ground_truth", "response", "num_tokens"}
_SAME |= {
    "model",
    "diagnosis",
    "problem",
    "group_id",
    "step",
    "epoch",
    "split",
    *SCORED_TYPES,
}


def _sample_of(row: Row, number: int, digest: str | None) -> dict[str, Any]:
    known = {name: row.get(name) for name in _SAME} | {"answer": row.get("extracted_answer")}
    for name in ("step", "epoch"):
        known[name] = known[name] if type(known[name]) is int else None
    known["problem"] = known["problem"] if type(known["problem"]) is str else None
    for name in ("split", "group_id", "answer", "diagnosis"):
        known[name] = None if known[name] is None else str(known[name])
    matched = known.pop("matched") or []
    channels = known["channels"]
    if channels is None or len(channels) != len(matched):
        channels = ["pattern" if reached else "" for reached in matched]
    other = {name: value for name, value in row.items() if name not in {*_SAME, "spans"}}
    known = {name: None if value != value else value for name, value in known.items()}  # NaN
    status = known["status"]
    return {
        **known,
        "key": number.to_bytes(16, "big"),
        "response_size": len(row["response"].encode("utf-8", "surrogatepass")),
        "status": status if status in Status.__members__ else Status.INTERNAL.value,
        "channels": [name if name in CHANNELS else "" for name in channels],
        "dataset_digest": digest,
        OTHER: json.dumps(other, default=str) if other else None,
    }


# The samples of one run.
Source: TypeAlias = LogSource | FileSource


def name_apart(sources: Sequence[Source]) -> None:
    """Put parent folders before the names of runs that have the same, as many as differ."""
    lengths = {source.place.parts: 1 for source in sources}
    while True:
        names = {parts: "/".join(parts[-length:]) for parts, length in lengths.items()}
        counts = Counter(names.values())
        same = [parts for parts, name in names.items() if counts[name] > 1]
        if not same:
            break
        for parts in same:
            lengths[parts] += 1
    for source in sources:
        source.name = names[source.place.parts]


def open_source(path: Path) -> Source:
    """Return the source of a path: a folder is a run, a file has scored rollouts.

    Raises:
        InputError: it is neither.
    """
    return LogSource(path) if path.is_dir() else FileSource(path)
