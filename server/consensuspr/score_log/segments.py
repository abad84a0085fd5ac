"""The files of a score log: open segments, closed ones, and how one becomes the other.

::

    RUN/scores/STEM.arrows    open: an Arrow IPC stream, one batch behind the other
    RUN/scores/STEM.parquet   closed: the same rows
    RUN/scores/STEM.lost      how much the writer that began with this segment has lost, if anything
    RUN/datasets/HEX.index    each dataset once, as a prepared dataset, under its digest

A Parquet file says what is in it at its end, so that one which is being written cannot be read, and
one whose writer was killed never; an IPC stream can be read up to its last whole batch.  Whoever
writes to the run closes the streams whose writers are gone; a reader takes them as they are.  The
Parquet file is written under another name and renamed, then the stream is removed: where both are
there, the Parquet file counts.

**Whose writer is gone.**  A writer holds a lock on its stream for as long as it lives, which the
processes of one machine see on any file system that has locks.  On network disks they may end at
the machine (NFS with ``local_lock`` or ``nolock``), or not exist: there a free lock says nothing,
and to close a stream that is written to would lose what comes.  So of another machine's streams,
and where there are no locks, only one that nobody has written to for :data:`ABANDONED_S` is closed.
A writer that lives closes its own long before, unless it is empty.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import socket
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import IO, Any, Final, Self

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from consensuspr.data.writers import atomic_file
from consensuspr.errors import DataError
from consensuspr.score_log.schema import SCHEMA, TEXT_COLUMNS, Side

OPEN, CLOSED, LOST = ".arrows", ".parquet", ".lost"
SCORES, DATASETS = "scores", "datasets"
# They hold responses: other users may not read them, even if the umask allows it.
FILE_MODE: Final = 0o640
FOLDER_MODE: Final = 0o750

# A stream with rows is closed a quarter of an hour after it was begun; clocks differ by minutes.
ABANDONED_S: Final = 3600.0

# Of a Parquet file's row groups: what a reader holds at a time.
GROUP_BYTES = 16 << 20
GROUP_ROWS = 8192

# What may say the same in many rows; to look for that in texts and keys is lost work.
_REPEATED: Final = [name for name in SCHEMA.names if name not in ("key", *TEXT_COLUMNS)]

_SCHEMA_BYTES: Final = SCHEMA.serialize().to_pybytes()
# Written together: of some hundred buffers of a batch, all but that of the texts are short.
_SHORT_BYTES: Final = 1 << 16
# Of an IPC message: it announces itself, then has the length of its metadata.
_CONTINUATION = b"\xff\xff\xff\xff"
_PREFIX_BYTES = 8


@dataclass(frozen=True, slots=True)
class Segment:
    """Some rows of one writer, in one file."""

    stem: str
    path: Path

    @property
    def is_open(self) -> bool:
        """Whether it is a stream, which may still grow."""
        return self.path.suffix == OPEN

    @property
    def side(self) -> str:
        """Who wrote it: ``trainer`` or ``server``."""
        return self.stem.split("-")[1] if self.stem.count("-") else ""

    @property
    def is_being_written(self) -> bool:
        """Whether its writer lives, as far as anybody can tell; on another machine, may live."""
        if not self.is_open:
            return False
        try:
            with self.path.open("rb") as file:
                return not self._is_abandoned(file, try_lock(file, shared=True))
        except FileNotFoundError:
            return False

    def _is_abandoned(self, file: IO[bytes], locked: bool | None) -> bool:
        """Say whether nobody writes to the stream, by what trying to lock it gave."""
        if locked is None or self.stem.split("-")[2:3] != [_machine()]:
            idle_s = time.time() - os.fstat(file.fileno()).st_mtime
            return locked is not False and idle_s > ABANDONED_S
        return locked

    @property
    def opened(self) -> int | None:
        """When its writer began it, in microseconds since 1970; None: the name does not tell."""
        try:
            begun = datetime.strptime(self.stem.partition("-")[0].ljust(21, "0"), _BEGUN)
        except ValueError:
            return None
        return round(begun.replace(tzinfo=UTC).timestamp() * 1e6)


def segments(run: Path) -> list[Segment]:
    """Return the segments of a run, each once, in the order in which they were begun."""
    found: dict[str, Segment] = {}
    with contextlib.suppress(FileNotFoundError):
        for path in (run / SCORES).iterdir():
            if path.suffix not in (OPEN, CLOSED) or path.name.startswith("."):
                continue
            if path.stem not in found or path.suffix == CLOSED:
                found[path.stem] = Segment(path.stem, path)
    return [found[stem] for stem in sorted(found)]


def private(path: str, flags: int) -> int:
    """Open a file with the mode of a score log, for :func:`open`."""
    return os.open(path, flags, FILE_MODE)


def reason_of(error: Exception) -> str:
    """Return the first line of an error, printable, because Arrow may quote the file's content."""
    line = str(error).strip().partition("\n")[0][:300]
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in line)


def check_regular(path: Path) -> None:
    """Check that opening a path cannot block, as a FIFO does.

    Raises:
        DataError: the path is a directory, a FIFO or a device.
        FileNotFoundError: it does not exist.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise DataError(str(path), None, "is not a regular file")


@dataclass(frozen=True, slots=True)
class Losses:
    """What a writer has given up in all.

    Attributes:
        rows: that it could not write.
        texts: of rows that it wrote without them.
    """

    rows: int = 0
    texts: int = 0

    def save(self, run: Path, stem: str) -> None:
        """Keep them beside the segments, in place of earlier ones.

        Not synced, as the streams are not: a writer that loses rows is behind already.

        Raises:
            OSError: they cannot be written.
        """
        hidden = run / SCORES / f".{stem}{LOST}"
        with open(hidden, "w", opener=private) as file:
            file.write(json.dumps(asdict(self)))
        hidden.replace(run / SCORES / f"{stem}{LOST}")

    @classmethod
    def of_run(cls, run: Path) -> list[tuple[Segment, Self]]:
        """Return those of each writer of a run that has any, with its first segment."""
        found = []
        for path in sorted((run / SCORES).glob(f"[!.]*{LOST}")):
            # What somebody else has put there, or a network disk does not give, tells nothing.
            with contextlib.suppress(DataError, OSError, ValueError, TypeError, KeyError):
                check_regular(path)
                said = json.loads(path.read_bytes())
                losses = cls(int(said["rows"]), int(said["texts"]))
                found.append((Segment(path.stem, path), losses))
        return found

    def __str__(self) -> str:
        told = ((self.rows, ""), (self.texts, "the text of "))
        return " and ".join(
            f"{of}{number:,} row{'s' * (number > 1)}" for number, of in told if number
        )


_BEGUN: Final = "%Y%m%dT%H%M%S%f"


def new_stem(side: Side, number: int) -> str:
    """Return a name that no other segment has; names sort by time."""
    begun = datetime.now(UTC).strftime(_BEGUN)
    return f"{begun}-{side}-{_machine()}-{os.getpid()}-{number:04d}-{secrets.token_hex(3)}"


@cache
def _machine() -> str:
    """Return the name of this machine, which another has not: there is one kernel for its locks."""
    try:
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    except OSError:
        kernel = ""  # no Linux: a container there is a machine of its own
    return "".join(c if c.isalnum() else "_" for c in f"{socket.gethostname()[:64]}_{kernel}")


class OpenSegment:
    """A stream that this process appends to.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, folder: Path, stem: str) -> None:
        self.segment = Segment(stem, folder / f"{stem}{OPEN}")
        self.begun = time.monotonic()
        self.rows = 0
        # Seen by others when it is locked: what is not locked has no writer.
        hidden = folder / f".{stem}{OPEN}"
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(hidden, flags, FILE_MODE)
        try:
            try_lock(self._file)
            self.size = 0
            self._append(_SCHEMA_BYTES)
            os.rename(hidden, self.segment.path)
        except OSError:
            os.close(self._file)
            with contextlib.suppress(OSError):
                hidden.unlink()
            raise

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch, wholly or not at all.

        Raises:
            OSError: it cannot be written; the stream is as it was before.
        """
        self._append(*_message(batch))
        self.rows += batch.num_rows

    def _append(self, *pieces: Any) -> None:
        size = self.size
        try:
            for piece in pieces:
                view = memoryview(piece)
                size += len(view)
                while view:
                    view = view[os.write(self._file, view) :]
        except OSError:
            # What follows a torn batch would be lost with it.
            os.ftruncate(self._file, self.size)
            raise
        self.size = size

    @property
    def is_removed(self) -> bool:
        """Whether somebody has removed the file: what is written to it, nobody can read."""
        try:
            there = os.stat(self.segment.path)
            return not os.path.samestat(there, os.fstat(self._file))
        except OSError as error:
            # By another machine, on a network disk: the handle is stale.
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
                return True
            raise

    def close(self) -> None:
        """Give the stream up; without rows, nothing is left of it."""
        if not self.rows:
            with contextlib.suppress(OSError):
                self.segment.path.unlink()
        os.close(self._file)


def _message(batch: pa.RecordBatch) -> list[Any]:
    """Return the pieces of the batch as it stands in a stream, which share its memory.

    It is not packed: a stream is as large as one segment, and becomes a Parquet file, which is;
    to pack the texts twice was half of what a log cost.
    """
    sink = _Pieces()
    with pa.ipc.new_stream(pa.PythonFile(sink, "w"), SCHEMA) as stream:
        stream.write_batch(batch)
        found = sink.taken()
    # Before it stands the schema, behind it the end of a stream.
    return [found[0][len(_SCHEMA_BYTES) :], *found[1:]]


class _Pieces:
    """A file that keeps what is written to it, what is long as it is: memory to copy it into would
    be new each time, and the system zeroes that.
    """

    closed = False

    def __init__(self) -> None:
        self._pieces: list[Any] = []
        self._short = bytearray()
        self._size = 0

    def write(self, data: Any) -> int:
        self._size += len(data)
        if len(data) < _SHORT_BYTES:
            self._short += data
        else:
            self._pieces += (self._short, data)
            self._short = bytearray()
        return len(data)

    def taken(self) -> list[Any]:
        """Return what there is so far, in order; what comes later is not added to it."""
        taken = [*self._pieces, self._short]
        self._pieces, self._short = [], bytearray()
        return taken

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Do nothing: nothing is held back."""

    def close(self) -> None:
        """Likewise."""


def try_lock(file: IO[bytes] | int, *, shared: bool = False) -> bool | None:
    """Lock a file unless somebody else has.

    Args:
        file: open for writing, unless ``shared``: network disks want it so.
        shared: let others do so too.

    Returns:
        Whether it is locked; None: the file system has no locks, or does not give one.
    """
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


class StreamReader:
    """Reads the whole batches of a stream from a position on, while it grows too.

    Args:
        file: binary, unbuffered or not; of a regular file.
        position: in bytes, where a batch begins; 0: the beginning.

    Attributes:
        position: behind what was read.
        left_out: bytes that no whole batch is made of, once reading has ended.
        damage: why the bytes left out are not a batch; empty if they may be unfinished.
    """

    def __init__(self, file: IO[bytes], position: int = 0) -> None:
        self._file = file
        self.position = position
        self.left_out = 0
        self.damage = ""

    def batches(self, skip_rows: int = 0) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the batches, each with the position behind it."""
        size = os.fstat(self._file.fileno()).st_size
        schema = self._message(0, size)
        if schema is None:
            self.left_out = size
            return
        try:
            read = pa.ipc.read_schema(schema[0])
        except (pa.ArrowException, OSError) as error:
            self._note_damage(error)
            self.left_out = size
            return
        self.position = max(self.position, schema[1])
        while (found := self._message(self.position, size)) is not None:
            message, end = found
            try:
                batch = pa.ipc.read_record_batch(message, read)
                batch.validate()
            except (pa.ArrowException, OSError) as error:
                self._note_damage(error)
                break
            self.position = end
            yield batch, end
        self.left_out = size - self.position

    def _message(self, position: int, size: int) -> tuple[Any, int] | None:
        """Return the message at a position and its end; None where there is no whole one."""
        tail = _Tail(self._file, position, size)
        try:
            message = pa.ipc.read_message(pa.PythonFile(tail, "r"))
        except EOFError:
            return None
        except (pa.ArrowException, OSError) as error:
            self._note_damage(error)
            return None
        return message, tail.position

    def _note_damage(self, error: Exception) -> None:
        self.damage = f"is damaged: {reason_of(error)}"


class _Tail:
    """The rest of a file, as Arrow reads it: what is not there is an error before it is asked for.

    A torn length would have Arrow make room for gigabytes.
    """

    closed = False

    def __init__(self, file: IO[bytes], position: int, end: int) -> None:
        self._file = file
        self.position = position
        self._end = end

    def read(self, size: int) -> bytes:
        if not 0 <= size <= self._end - self.position:
            raise EOFError
        data = os.pread(self._file.fileno(), size, self.position)
        if len(data) < size:
            raise EOFError
        self.position += size
        return data

    def tell(self) -> int:
        return self.position

    def close(self) -> None:
        """Leave the file open: it is another's."""


def close_segment(segment: Segment) -> int:
    """Make a Parquet file of a stream, and remove the stream; return the bytes left out at its end.

    Raises:
        InputError: the file cannot be written; the stream stays.
        DataError: its columns are not those of a score log; it stays.
        OSError: the stream cannot be read.
    """
    with segment.path.open("rb") as file:
        reader = StreamReader(file)
        batches = (batch for batch, _ in reader.batches())
        try:
            rows = write_parquet(segment.path.with_suffix(CLOSED), batches)
        except pa.ArrowException as error:
            raise DataError(
                str(segment.path), None, f"cannot be closed: {reason_of(error)}"
            ) from None
    if not rows:
        segment.path.with_suffix(CLOSED).unlink()
    segment.path.unlink()
    return reader.left_out


def with_columns(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """Return the columns of a batch; null where it is older than one of them."""
    fields = [SCHEMA.field(name) for name in columns]
    arrays = [
        batch.column(field.name)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in fields
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def write_parquet(path: Path, batches: Iterator[pa.RecordBatch]) -> int:
    """Write batches, small ones together; return the number of rows."""
    rows, held, held_bytes, held_rows = 0, [], 0, 0
    with (
        atomic_file(path, FILE_MODE) as target,
        pq.ParquetWriter(target, SCHEMA, compression="zstd", use_dictionary=_REPEATED) as out,
    ):
        for batch in batches:
            held.append(with_columns(batch, SCHEMA.names))
            held_bytes += batch.nbytes
            held_rows += batch.num_rows
            rows += batch.num_rows
            if held_bytes >= GROUP_BYTES or held_rows >= GROUP_ROWS:
                out.write_table(pa.Table.from_batches(held, SCHEMA))
                held, held_bytes, held_rows = [], 0, 0
        if held:
            out.write_table(pa.Table.from_batches(held, SCHEMA))
    return rows


def close_abandoned(run: Path) -> list[tuple[Segment, int]]:
    """Close the streams whose writers are gone; return them, and the bytes left out of each.

    Several processes may do so at a time; a stream that cannot be closed stays as it is.
    """
    closed = []
    # Not what is hidden: a stream that its writer has not locked yet.
    for path in sorted((run / SCORES).glob(f"[!.]*{OPEN}")):
        segment = Segment(path.stem, path)
        try:
            check_regular(path)
            with path.open("r+b") as file:
                if not segment._is_abandoned(file, try_lock(file)):
                    continue
                if path.with_suffix(CLOSED).exists():
                    path.unlink()  # of a process that was killed between the two steps
                elif os.fstat(file.fileno()).st_nlink:
                    closed.append((segment, close_segment(segment)))
        except (FileNotFoundError, DataError):
            continue  # another process has removed it, or it is no stream: readers report that
    return closed


def forget_texts(path: Path) -> int:
    """Take the texts out of a closed segment; return how many there were.

    Raises:
        InputError: it cannot be written.
        DataError: it is no segment.
    """
    forgotten = 0

    def without_text() -> Iterator[pa.RecordBatch]:
        nonlocal forgotten
        for batch in open_parquet(path).iter_batches(batch_size=GROUP_ROWS):
            forgotten += batch.num_rows - batch.column("response").null_count
            kept = [name for name in batch.schema.names if name not in TEXT_COLUMNS]
            yield with_columns(batch.select(kept), SCHEMA.names)

    write_parquet(path, without_text())
    return forgotten


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a closed segment.

    Raises:
        DataError: it is none.
        OSError: it cannot be opened.
    """
    check_regular(path)
    try:
        return pq.ParquetFile(path)
    except pa.ArrowException as error:
        raise DataError(
            str(path), None, f"is no segment of a score log: {reason_of(error)}"
        ) from None


def rows_of_parquet(path: Path, rows: Sequence[int], columns: Sequence[str]) -> pa.Table:
    """Return rows of a file by their numbers, which ascend; only their row groups are read.

    Raises:
        DataError: it cannot be read, or has no such row.
    """
    file = open_parquet(path)
    known = [name for name in columns if name in file.schema_arrow.names]
    found, first, left = [], 0, list(rows)
    for group in range(file.metadata.num_row_groups):
        size = file.metadata.row_group(group).num_rows
        here = [row - first for row in left if row < first + size]
        if here:
            try:
                read = file.read_row_group(group, columns=known)
            except (pa.ArrowException, OSError) as error:
                raise DataError(str(path), None, f"cannot be read: {reason_of(error)}") from None
            found.append(read.take(pa.array(here)))
            left = left[len(here) :]
        first += size
    if left:
        raise DataError(str(path), None, f"has no row {left[0]}")
    return pa.concat_tables(found)
