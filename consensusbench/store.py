"""A journal on disk of results that cost money or time."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from consensuspr.data import Row
from consensuspr.data.writers import dump_json_line
from consensuspr.errors import ConsensusPRError, DataError, InputError

_VERSION = 2
_SCHEMA = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS journal (kind TEXT NOT NULL, version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS records
    (number INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, record TEXT NOT NULL);
COMMIT;
"""


def digest(value: object) -> str:
    """Return a digest of a JSON value, 32 hexadecimal digits."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


class Journal:
    """Records by key in one SQLite file, for one process at a time; a context manager.

    Args:
        path: made if it does not exist, and removed if it is closed without a record; its folder
            must exist.
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
            self._database.close()
            if "locked" in str(error):
                raise InputError(f"{path} is in use by another run") from None
            if isinstance(error, sqlite3.OperationalError):
                raise InputError(f"{path}: cannot be opened: {error}") from None
            raise DataError(str(path), None, f"is no journal of {kind}: {error}") from None
        if known not in ([], [(kind, _VERSION)]):
            self._database.close()
            raise DataError(str(path), None, f"is no journal of {kind}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        is_empty = not len(self)
        self._database.close()
        if is_empty:
            self.path.unlink(missing_ok=True)

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

    def clear(self) -> None:
        """Forget all records: the work is done."""
        self._write("DELETE FROM records")

    def _write(self, statement: str, *values: str) -> None:
        try:
            self._database.execute(statement, values)
        except sqlite3.Error as error:
            raise ConsensusPRError(f"{self.path}: cannot be written: {error}") from error
