"""``Journal``: what was paid for, on disk before anything else is done with it.

An append-only file of JSON lines.  The first says what the file is; lines of settings say how it
was asked, so that a changed plan is noticed instead of paid for again; each other line is one
record under a key, a digest of what was asked.  A record is on disk (fsync) when ``append``
returns.  A process that is killed can leave a torn last line: it is cut off, and what it was
about is asked again.  Damage anywhere else is an error and never repaired by guessing.

One process writes a journal at a time; an exclusive lock on the file, which ends with the
process however it ends, keeps a second one out.  Records stay on disk: memory holds a key and a
position for each.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from consensusbench.llm.client import ChatModel
from consensusbench.llm.types import Message, ModelSettings, Reply
from consensuspr.data import Row
from consensuspr.data.writers import dump_json_line
from consensuspr.errors import ConsensusPRError, DataError, InputError

VERSION = 1
_BLOCK = 1 << 20


def digest(value: object) -> str:
    """Return 32 hexadecimal digits that stand for a JSON value."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


def ask_key(
    settings: ModelSettings,
    messages: Sequence[Message],
    *,
    temperature: float | None = None,
    json_schema: Mapping[str, Any] | None = None,
    seed: int | None = None,
    sample: object = 0,
) -> str:
    """Return the key of a question: equal keys were asked the same of the same model.

    Args:
        settings: who is asked; address, limits and prices do not count.
        messages: what is asked.
        temperature: as given to ``ask``.
        json_schema: as given to ``ask``.
        seed: as given to ``ask``.
        sample: tells apart samples of the same question; any JSON value.
    """
    asked = settings.sampling() | ({} if temperature is None else {"temperature": temperature})
    turns = [[message.role, message.content] for message in messages]
    return digest([settings.name, asked, turns, json_schema, seed, sample])


class Journal:
    """Records by key in one file, for one process at a time.  Thread-safe.

    Args:
        path: made where it does not exist; its folder must.
        kind: what writes it, in one word; another kind's file is refused.
        settings: what must not change between runs, one JSON value a name.  Names that the
            file does not know yet are added to it.
        visit: called with key and record for each record that is there, in file order.
        read_only: look and change nothing; the file must exist, and ``append`` refuses.

    Raises:
        InputError: another process holds it, it is of another kind, or a setting differs.
        DataError: it is damaged otherwise than at its end.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        kind: str,
        settings: Mapping[str, object],
        visit: Callable[[str, Row], None] | None = None,
        *,
        read_only: bool = False,
    ) -> None:
        self.path = Path(path)
        self._kind = kind
        self._positions: dict[str, int] = {}
        self._lock = threading.Lock()
        # Taken before the other, never after it.
        self._syncing = threading.Lock()
        self._written = self._synced = 0
        self._settings: Row = {}
        self._read_only = read_only
        self._file = _open(self.path, read_only)
        try:
            _lock(self._file, self.path)
            self._end = self._load(visit)
            self.check(settings)
            if not read_only:
                if self._end == 0:
                    self._write(self._head())
                self.declare(settings)
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let another process have the file."""
        with self._syncing, self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def check(self, settings: Mapping[str, object]) -> None:
        """Compare settings with those that the file knows, and write nothing.

        Raises:
            InputError: one differs.
        """
        for name, value in _as_json(settings).items():
            if name in self._settings and self._settings[name] != value:
                raise InputError(
                    f"{self.path} was begun with {name} = {json.dumps(self._settings[name])}, "
                    f"now it is {json.dumps(value)}: keep the setting, or begin another output"
                )

    def declare(self, settings: Mapping[str, object]) -> None:
        """Write down the settings that the file does not know; they hold from now on.

        Raises:
            InputError: one differs.
            ConsensusPRError: they cannot be written.
        """
        self.check(settings)
        with self._lock:
            new = {
                name: value
                for name, value in _as_json(settings).items()
                if name not in self._settings
            }
            if new:
                self._write({"settings": new})
                self._settings |= new
            ticket = self._written
        self._sync(ticket)

    def __len__(self) -> int:
        return len(self._positions)

    def __contains__(self, key: str) -> bool:
        return key in self._positions

    def __iter__(self) -> Iterator[str]:
        """Yield the keys, oldest first."""
        return iter(self._positions)

    def get(self, key: str) -> Row | None:
        """Return the record of a key, None where there is none."""
        position = self._positions.get(key)
        if position is None:
            return None
        record: Row = json.loads(self._line_at(position))["record"]
        return record

    def append(self, key: str, record: Row, *, durable: bool = True) -> None:
        """Write one record; it is on disk when this returns.  Blocks for as long as a disk does.

        Args:
            key: not used before.
            record: JSON values.
            durable: False for what can be computed again: it may be lost in a power cut.

        Raises:
            ConsensusPRError: it cannot be written (the file is as it was before), or not be
                brought to disk (nobody can tell what is there).
        """
        with self._lock:
            if key in self._positions:
                raise ValueError(f"the journal has a record of {key} already")
            self._positions[key] = self._write({"key": key, "record": record})
            ticket = self._written
        if durable:
            self._sync(ticket)

    def _load(self, visit: Callable[[str, Row], None] | None) -> int:
        """Read all lines, cut off a torn one, and return where the next one goes."""
        position = 0
        for number, line in enumerate(self._lines(), 1):
            whole = line.endswith(b"\n")
            entry = _entry(line) if whole else None
            if entry is None:
                if position + len(line) < os.fstat(self._file).st_size:
                    raise DataError(str(self.path), number, "is no line of a journal")
                if number == 1 and not dump_json_line(self._head()).startswith(line):
                    # Not cut off: it may be somebody's file that was named by mistake.
                    raise DataError(str(self.path), None, f"is no journal of {self._kind}")
                break
            self._take(entry, number, position, visit)
            position += len(line)
        if not self._read_only:
            os.ftruncate(self._file, position)
        return position

    def _take(
        self, entry: Row, number: int, position: int, visit: Callable[[str, Row], None] | None
    ) -> None:
        if number == 1:
            self._check_kind(entry)
        elif "settings" in entry:
            self._settings |= entry["settings"]
        elif "key" in entry and "record" in entry:
            self._positions[entry["key"]] = position
            if visit is not None:
                visit(entry["key"], entry["record"])
        else:
            raise DataError(str(self.path), number, "is no line of a journal")

    def _head(self) -> Row:
        return {"journal": self._kind, "version": VERSION}

    def _check_kind(self, entry: Row) -> None:
        kind = entry.get("journal")
        if kind != self._kind:
            raise DataError(str(self.path), None, f"is no journal of {self._kind}")
        if entry.get("version") != VERSION:
            version = entry.get("version")
            raise DataError(str(self.path), None, f"has version {version!r}, not {VERSION}")

    def _write(self, entry: Row) -> int:
        """Append one line and return its position; the caller holds the lock."""
        if self._file < 0 or self._read_only:
            raise ConsensusPRError(f"{self.path}: the journal is not open for writing")
        line = dump_json_line(entry)
        position = self._end
        try:
            written = 0
            while written < len(line):
                written += os.pwrite(self._file, line[written:], position + written)
        except OSError as error:
            os.ftruncate(self._file, position)
            raise ConsensusPRError(f"{self.path}: cannot be written: {error.strerror}") from error
        self._end = position + len(line)
        self._written += 1
        return position

    def _sync(self, ticket: int) -> None:
        """Bring the first ``ticket`` lines to disk; threads that wait meanwhile share one fsync."""
        with self._syncing:
            if self._synced >= ticket:
                return
            with self._lock:
                written = self._written
            try:
                os.fsync(self._file)
            except OSError as error:
                raise ConsensusPRError(
                    f"{self.path}: cannot be brought to disk: {error.strerror}"
                ) from error
            self._synced = written

    def _lines(self) -> Iterator[bytes]:
        # A descriptor of its own, so that closing the stream does not end the lock.
        with open(os.dup(self._file), "rb", buffering=_BLOCK) as stream:
            stream.seek(0)
            yield from stream

    def _line_at(self, position: int) -> bytes:
        parts: list[bytes] = []
        size = 1 << 14
        while True:
            part = os.pread(self._file, size, position)
            end = part.find(b"\n")
            if end >= 0 or not part:
                parts.append(part[: end + 1] if end >= 0 else b"")
                return b"".join(parts)
            parts.append(part)
            position += len(part)
            size = _BLOCK


def _as_json(settings: Mapping[str, object]) -> Row:
    """Return settings as they read back: a tuple is a list."""
    value: Row = json.loads(json.dumps(settings))
    return value


def _open(path: Path, read_only: bool) -> int:
    access = os.O_RDONLY if read_only else os.O_RDWR | os.O_CREAT
    try:
        return os.open(path, access | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise InputError(f"{path}: cannot be opened: {error.strerror}") from error


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(f"{path} is in use by another run") from None


def _entry(line: bytes) -> Row | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


# MERGED Asking through a journal: nothing that was replied once is paid for again.


async def ask_once(
    model: ChatModel,
    journal: Journal,
    messages: Sequence[Message],
    *,
    temperature: float | None = None,
    json_schema: Mapping[str, Any] | None = None,
    seed: int | None = None,
    sample: object = 0,
) -> Reply:
    """Return the journal's reply to a question, or ask it and write the reply down.

    The record is that of :meth:`Reply.to_row`.  A reply that was received is written down even
    if this is cancelled meanwhile.

    Args:
        model: who is asked.
        journal: where replies are.
        messages: what is asked.
        temperature: see :meth:`ChatModel.ask`.
        json_schema: see :meth:`ChatModel.ask`.
        seed: see :meth:`ChatModel.ask`.
        sample: tells apart samples of the same question; any JSON value.

    Raises:
        ModelError: see :meth:`ChatModel.ask`.
        ConsensusPRError: the journal cannot be written.
    """
    key = ask_key(
        model.settings,
        messages,
        temperature=temperature,
        json_schema=json_schema,
        seed=seed,
        sample=sample,
    )
    record = journal.get(key)
    if record is not None:
        return Reply.from_row(record)

    async def keep(reply: Reply) -> None:
        await write_down(journal, key, reply.to_row())

    return await model.ask(
        messages, temperature=temperature, json_schema=json_schema, seed=seed, keep=keep
    )


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
