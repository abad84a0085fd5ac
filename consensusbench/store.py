"""What was paid for, on disk before anything else is done with it: SQLite files of one process.

A :class:`Journal` holds records under keys, each a digest of what was asked, and the settings
that they were asked with, so that a changed plan is noticed instead of paid for again.  A record
is on disk (fsync) when :meth:`Journal.append` returns; a process that is killed loses none, and
what it was about to write is asked again.

One process has a journal at a time: the lock is SQLite's own, ends with the process however it
ends, and is not inherited by its children.  SQLite's write-ahead log costs one fsync a record;
with an exclusive lock it needs no shared memory, so that a network disk will do.  After a kill
the newest records are in ``FILE-wal`` beside the journal, and go into it with the next run.

Journals of the version before this one were JSON lines; they are converted when they are opened,
and only read where nothing may be written.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import pickle
import sqlite3
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Generic, Self, TypeVar

from consensuspr.data import Row
from consensuspr.data.writers import dump_json_line
from consensuspr.errors import ConsensusPRError, DataError, InputError

VERSION = 2
ValueT = TypeVar("ValueT")
_SCHEMA = """
BEGIN;
CREATE TABLE journal (kind TEXT NOT NULL, version INTEGER NOT NULL);
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE records (number INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, record TEXT NOT NULL);
"""


def digest(value: object) -> str:
    """Return 32 hexadecimal digits that stand for a JSON value."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


def open_database(path: Path, *, create: bool = True) -> sqlite3.Connection:
    """Open an SQLite file for this process alone; each statement is a transaction.

    Args:
        path: the file; its folder must exist.
        create: make it where it does not exist.

    Raises:
        InputError: another process holds it, or it cannot be opened.
        sqlite3.DatabaseError: it is no database.
    """
    uri = f"{path.absolute().as_uri()}?mode={'rwc' if create else 'rw'}"
    try:
        connection = sqlite3.connect(
            uri, uri=True, timeout=0, isolation_level=None, check_same_thread=False
        )
    except sqlite3.OperationalError as error:
        raise InputError(f"{path}: cannot be opened: {error}") from None
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        # Takes the lock, which is then kept.
        connection.executescript("BEGIN IMMEDIATE; COMMIT")
    except sqlite3.DatabaseError as error:
        connection.close()
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise InputError(f"{path} is in use by another run") from None
        if isinstance(error, sqlite3.OperationalError):
            raise InputError(f"{path}: cannot be opened: {error}") from None
        raise
    return connection


class Journal:
    """Records by key in one file, for one process at a time.  Thread-safe.

    Memory holds the keys; the records stay on disk.

    Args:
        path: made where it does not exist; its folder must.
        kind: what writes it, in one word; another kind's file is refused.
        settings: what must not change between runs, one JSON value a name.  Names that the
            file does not know yet are added to it.
        read_only: look and add nothing; the file must exist, and ``append`` refuses.

    Raises:
        InputError: another process holds it, or a setting differs.
        DataError: it is of another kind, or damaged.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        kind: str,
        settings: Mapping[str, object],
        *,
        read_only: bool = False,
    ) -> None:
        self.path = Path(path)
        self.kind = kind
        self._lock = threading.Lock()
        with _locked_lines(self.path) as lines:
            if lines is not None and not read_only:
                _convert(lines, self.path, kind)
                lines = None
            self._open(settings, read_only, lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another process have the file."""
        with self._lock:
            self._database.close()

    def check(self, settings: Mapping[str, object]) -> None:
        """Compare settings with those that the file knows, and write nothing.

        Raises:
            InputError: one differs.
        """
        for name, value in settings.items():
            now = json.dumps(value)
            if self._settings.get(name, now) != now:
                raise InputError(
                    f"{self.path} was begun with {name} = {self._settings[name]}, "
                    f"now it is {now}: keep the setting, or begin another output"
                )

    def declare(self, settings: Mapping[str, object]) -> None:
        """Write down the settings that the file does not know; they hold from now on.

        Raises:
            InputError: one differs.
            ConsensusPRError: they cannot be written.
        """
        self.check(settings)
        with self._lock:
            for name, value in settings.items():
                if name not in self._settings:
                    now = json.dumps(value)
                    self._write("INSERT INTO settings VALUES (?, ?)", name, now)
                    self._settings[name] = now

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[str]:
        """Yield the keys, oldest first."""
        return iter(self._keys)

    def get(self, key: str) -> Row | None:
        """Return the record of a key, None where there is none."""
        if key not in self._keys:
            return None
        with self._lock:
            [text] = self._database.execute(
                "SELECT record FROM records WHERE key = ?", (key,)
            ).fetchone()
        record: Row = json.loads(text)
        return record

    def items(self) -> Iterator[tuple[str, Row]]:
        """Yield keys and records, oldest first; nothing may be added meanwhile."""
        for key, text in self._database.execute("SELECT key, record FROM records ORDER BY number"):
            yield key, json.loads(text)

    def append(self, key: str, record: Row, *, durable: bool = True) -> None:
        """Write one record; it is on disk when this returns.  Blocks for as long as a disk does.

        Args:
            key: not used before.
            record: JSON values.
            durable: False for what can be computed again: a kill does not lose it, but a power
                cut may.

        Raises:
            ConsensusPRError: it cannot be written; the journal is as it was before.
        """
        text = dump_json_line(record).decode("utf-8")
        with self._lock:
            if key in self._keys:
                raise ValueError(f"the journal has a record of {key} already")
            self._write("INSERT INTO records (key, record) VALUES (?, ?)", key, text, durable)
            self._keys[key] = None

    def _open(
        self, settings: Mapping[str, object], read_only: bool, lines: BinaryIO | None
    ) -> None:
        """Open the file, or take its lines into a database that ends with this object."""
        try:
            if lines is None:
                self._database = open_database(self.path, create=not read_only)
            else:
                self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        except sqlite3.DatabaseError:
            raise DataError(str(self.path), None, f"is no journal of {self.kind}") from None
        try:
            self._load(create=lines is not None or not read_only)
            if lines is not None:
                _copy_lines(lines, self, self.path)
            if read_only:
                self._database.execute("PRAGMA query_only = ON")
                self.check(settings)
            else:
                self.declare(settings)
        except sqlite3.DatabaseError as error:
            self.close()
            raise DataError(str(self.path), None, f"is damaged: {error}") from None
        except BaseException:
            self.close()
            raise

    def _load(self, create: bool) -> None:
        tables = {name for (name,) in self._database.execute("SELECT name FROM sqlite_master")}
        if create and not tables:
            self._database.executescript(
                f"{_SCHEMA} INSERT INTO journal VALUES ('{self.kind}', {VERSION}); COMMIT"
            )
        elif "journal" not in tables:
            raise DataError(str(self.path), None, f"is no journal of {self.kind}")
        [(kind, version)] = self._database.execute("SELECT kind, version FROM journal")
        if kind != self.kind:
            raise DataError(str(self.path), None, f"is no journal of {self.kind}")
        if version != VERSION:
            raise DataError(str(self.path), None, f"has version {version!r}, not {VERSION}")
        self._settings = dict(self._database.execute("SELECT name, value FROM settings"))
        keys = self._database.execute("SELECT key FROM records ORDER BY number")
        self._keys = dict.fromkeys(key for (key,) in keys)

    def _write(self, statement: str, key: str, value: str, durable: bool = True) -> None:
        """Run one statement of two values; the caller holds the lock."""
        try:
            self._database.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._database.execute(statement, (key, value))
        except sqlite3.Error as error:
            raise ConsensusPRError(f"{self.path}: cannot be written: {error}") from error


class RowSpool(Generic[ValueT]):
    """Values put aside in their order until all have been seen, on disk in a nameless file."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="consensusbench-")  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def add(self, value: ValueT) -> None:
        """Put one value behind the others."""
        # Pickle is quick, and nobody else sees this file.
        pickle.dump(value, self._file, pickle.HIGHEST_PROTOCOL)

    def __iter__(self) -> Iterator[ValueT]:
        """Yield all values, in order."""
        self._file.seek(0)
        while True:
            try:
                yield pickle.load(self._file)
            except EOFError:
                return


async def write_down(journal: Journal, key: str, record: Row, *, durable: bool = True) -> None:
    """Append a record without holding up the event loop; done when this returns or is cancelled.

    Raises:
        ConsensusPRError: the journal cannot be written.
    """
    writing = asyncio.ensure_future(asyncio.to_thread(journal.append, key, record, durable=durable))
    try:
        await asyncio.shield(writing)
    except asyncio.CancelledError:
        # What is in hand was paid for.
        await writing
        raise


@contextmanager
def _locked_lines(path: Path) -> Iterator[BinaryIO | None]:
    """Give a journal of JSON lines, from its beginning; None where it is none.

    Raises:
        InputError: a run of the version that wrote it holds it.
    """
    try:
        lines = path.open("rb")
    except OSError:
        yield None  # told when the database is opened
        return
    with lines:
        if lines.read(len(b'{"journal"')) != b'{"journal"':
            yield None
            return
        try:
            fcntl.flock(lines, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{path} is in use by another run") from None
        lines.seek(0)
        # Another run may have converted it since it was opened.
        same = os.path.samestat(os.fstat(lines.fileno()), path.stat())
        yield lines if same else None


def _convert(lines: BinaryIO, path: Path, kind: str) -> None:
    """Make a journal of JSON lines one of SQLite."""
    new = Path(f"{path}.new")
    new.unlink(missing_ok=True)
    try:
        with Journal(new, kind, {}) as journal:
            _copy_lines(lines, journal, path)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _copy_lines(lines: BinaryIO, journal: Journal, path: Path) -> None:
    """Add what a journal of JSON lines holds; a torn last line is left out.

    Raises:
        DataError: it is of another kind, or damaged otherwise than at its end.
    """
    match _parsed(lines.readline()):
        case {"journal": journal.kind, "version": 1}:
            pass
        case {"journal": journal.kind, "version": version}:
            raise DataError(str(path), None, f"has version {version!r}, not {VERSION}")
        case _:
            raise DataError(str(path), None, f"is no journal of {journal.kind}")
    for number, line in enumerate(lines, 2):
        if not line.endswith(b"\n"):
            return  # torn: no other than the last can be
        match _parsed(line):
            case {"settings": dict(settings)}:
                journal.declare(settings)
            case {"key": str(key), "record": dict(record)}:
                if key in journal:
                    raise DataError(
                        str(path), number, f"repeats the key {key[:40]!r} of an earlier record"
                    )
                journal.append(key, record, durable=False)
            case _:
                raise DataError(str(path), number, "is no line of a journal")


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None
