"""Records on disk: replies that were paid for, extractions, and rows put aside."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Generic, Self, TypeVar

from consensuspr.data import Row
from consensuspr.data.writers import dump_json_line
from consensuspr.errors import ConsensusPRError, DataError, InputError

ValueT = TypeVar("ValueT")
_VERSION = 2
_SCHEMA = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS journal (kind TEXT NOT NULL, version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS records
    (number INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, record TEXT NOT NULL);
COMMIT;
"""


def digest(value: object) -> str:
    """Return 32 hexadecimal digits that stand for a JSON value."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


class Journal:
    """Records by key in one SQLite file, for one process at a time.

    Args:
        path: made if it does not exist; its folder must exist.
        kind: one word for the content; a journal of another kind is rejected.
        durable: bring each record to disk at once, because it was paid for.  Otherwise a kill
            loses nothing, but a power cut may.

    Raises:
        InputError: another process uses it, or it cannot be opened.
        DataError: it is no journal of this kind, or it is damaged.
    """

    def __init__(self, path: str | os.PathLike[str], kind: str, *, durable: bool = True) -> None:
        self.path = Path(path)
        try:
            self._database = sqlite3.connect(
                path, timeout=0, isolation_level=None, check_same_thread=False
            )
        except sqlite3.OperationalError as error:
            raise InputError(f"{path}: cannot be opened: {error}") from None
        try:
            self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._database.executescript(_SCHEMA)
            known = self._database.execute("SELECT kind, version FROM journal").fetchall()
            if not known:
                self._database.execute("INSERT INTO journal VALUES (?, ?)", (kind, _VERSION))
        except sqlite3.DatabaseError as error:
            self.close()
            if "locked" in str(error):
                raise InputError(f"{path} is in use by another run") from None
            if isinstance(error, sqlite3.OperationalError):
                raise InputError(f"{path}: cannot be opened: {error}") from None
            raise DataError(str(path), None, f"is no journal of {kind}: {error}") from None
        if known not in ([], [(kind, _VERSION)]):
            self.close()
            raise DataError(str(path), None, f"is no journal of {kind}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another process use the file."""
        self._database.close()

    def check(self, settings: Mapping[str, object]) -> None:
        """Compare settings with those of :meth:`declare`.

        Raises:
            InputError: one differs.
        """
        known = dict(self._database.execute("SELECT name, value FROM settings"))
        for name, value in settings.items():
            now = json.dumps(value)
            if known.get(name, now) != now:
                raise InputError(
                    f"{self.path} was begun with {name} = {known[name]}, "
                    f"now it is {now}: keep the setting, or begin another output"
                )

    def declare(self, settings: Mapping[str, object]) -> None:
        """Record settings that later runs must keep."""
        for name, value in settings.items():
            self._write("INSERT OR IGNORE INTO settings VALUES (?, ?)", name, json.dumps(value))

    def __len__(self) -> int:
        [[count]] = self._database.execute("SELECT count(*) FROM records")
        return int(count)

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def get(self, key: str) -> Row | None:
        """Return the record of a key, None if it has none."""
        found = self._database.execute("SELECT record FROM records WHERE key = ?", (key,))
        row = found.fetchone()
        return None if row is None else dict(json.loads(row[0]))

    def items(self) -> Iterator[tuple[str, Row]]:
        """Yield keys and records, oldest first; add nothing meanwhile."""
        for key, text in self._database.execute("SELECT key, record FROM records ORDER BY number"):
            yield key, json.loads(text)

    def append(self, key: str, record: Row) -> None:
        """Write the record of a new key.

        Raises:
            ConsensusPRError: it cannot be written; the journal is as before.
        """
        text = dump_json_line(record).decode("utf-8")
        self._write("INSERT INTO records (key, record) VALUES (?, ?)", key, text)

    def _write(self, statement: str, key: str, value: str) -> None:
        try:
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
