"""Rows written to JSONL, gzip'd JSONL or Parquet, by the suffix of the output's name.

**The output appears when all rows are written, or not at all**: the content goes to a temporary
file in the target's directory, which takes the target's name once all of it is on disk.

**Values that JSON lacks**: NaN and the infinities become null, bytes text, dates ISO 8601, all else
its ``str``.

**Parquet** gets its columns at the end, because rollouts carry columns that nobody declared.  Rows
are spooled to disk while the narrowest type that fits each column is worked out.  A column that no
type fits (mixed types, empty objects) becomes JSON text and is marked as such; the reader of this
package turns it back.  A key that one object of a column lacks is null there.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import math
import os
import pickle
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Protocol

from consensuspr.data.readers import JSON_MARK, TABLE_SUFFIXES
from consensuspr.data.schema import Row
from consensuspr.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa
    from _typeshed import ReadableBuffer

PARQUET_SUFFIXES = (".parquet", ".pq")
# Of Parquet, held before they go to disk.
CHUNK_ROWS = 2048
CHUNK_CHARS = 16 << 20  # of strings, which make nearly all of a row's size

# A cell that begins so is a formula in some spreadsheet.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def is_parquet_output(path: str | os.PathLike[str]) -> bool:
    """Return whether :func:`open_writer` writes Parquet to a path of this name."""
    return os.path.splitext(os.fspath(path))[1].lower() in PARQUET_SUFFIXES


def check_row_output(path: str | os.PathLike[str]) -> None:
    """Raise InputError if the name is that of a table, which :func:`open_writer` does not write."""
    name = os.fspath(path)
    suffix = os.path.splitext(name.lower().removesuffix(".gz"))[1]
    if suffix in TABLE_SUFFIXES:
        raise InputError(
            f"{name}: rows are written as .jsonl, .jsonl.gz or .parquet, not as {suffix}"
        )


class RowWriter(Protocol):
    """Takes rows one by one."""

    def write(self, row: Row) -> None:
        """Write one row.  It may be held until the writer closes: do not change it after."""


@contextlib.contextmanager
def open_writer(
    path: str | os.PathLike[str], types: Mapping[str, str] | None = None
) -> Iterator[RowWriter]:
    """Open ``path`` for rows; it is replaced when the block ends without an error.

    Args:
        path: ``*.parquet`` or ``*.pq`` is Parquet, ``*.gz`` gzip'd JSONL, a table (``*.csv``)
            nothing, all else JSONL.
        types: Arrow types of columns that are known beforehand, such as ``"double"`` or
            ``"list<bool>"``; looked at for Parquet only.

    Raises:
        InputError: the output cannot be written.
    """
    check_row_output(path)
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    with atomic_file(path) as stream:
        if suffix in PARQUET_SUFFIXES:
            parquet = ParquetRows(os.fspath(path), types or {})
            try:
                yield parquet
                parquet.write_to(stream)
            finally:
                parquet.discard()
        elif suffix == ".gz":
            # Neither name nor time inside: equal rows give equal files.
            with gzip.GzipFile("", "wb", 6, stream, mtime=0) as packed:
                yield JsonRows(packed)
        else:
            yield JsonRows(stream)


class JsonRows:
    """Writes each row as one line of JSON."""

    def __init__(self, stream: BinaryIO | gzip.GzipFile) -> None:
        self._stream = stream

    def write_lines(self, lines: bytes) -> None:
        """Write rows that are lines of JSON already."""
        self._stream.write(lines)

    def write(self, row: Row) -> None:
        self._stream.write(dump_json_line(row))


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str], mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open a binary file that replaces ``path`` when the block ends without an error.

    A symbolic link is followed, so that the link stays one.  The umask limits ``mode``.

    Raises:
        InputError: the target cannot be written (at any time: a disk gets full), or is not a
            regular file (renaming onto a device such as ``/dev/null`` would replace the device).
    """
    name = os.fspath(path)
    target = os.path.realpath(name)
    if os.path.lexists(target) and not os.path.isfile(target):
        raise InputError(f"{name}: is not a regular file and cannot be replaced")
    folder, base = os.path.split(target)
    temporary = os.path.join(folder, f".{base[:200]}.{secrets.token_hex(6)}.tmp")
    with _names_target(name):
        # Not tempfile: its files are private, and the result should follow the umask.
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
        stream = io.BufferedRandom(_Target(os.open(temporary, flags, mode), name))
    try:
        with stream:
            yield stream
            with _names_target(name):
                stream.flush()
                os.fsync(stream.fileno())
        with _names_target(name):
            os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync_folder(folder)


class _Target(io.FileIO):
    """The temporary file; whatever writes to it, a failure names the target."""

    def __init__(self, descriptor: int, name: str) -> None:
        super().__init__(descriptor, "r+b")
        self._named = name

    def write(self, data: ReadableBuffer, /) -> int:
        with _names_target(self._named):
            return super().write(data)


@contextlib.contextmanager
def _names_target(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"{name}: cannot be written: {error.strerror}") from error


def _sync_folder(folder: str) -> None:
    """Make the rename itself survive a power cut, where the system lets folders be synced."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def dump_json(value: object, ensure_ascii: bool = False) -> str:
    """Return ``value`` as one line of JSON."""
    try:
        return json.dumps(value, ensure_ascii=ensure_ascii, allow_nan=False, default=_as_json)
    except ValueError:
        plain = _finite(value)
        return json.dumps(plain, ensure_ascii=ensure_ascii, allow_nan=False, default=_as_json)


def dump_json_line(value: object) -> bytes:
    """Return ``value`` as UTF-8 with a line end; a lone surrogate is escaped and survives."""
    try:
        return dump_json(value).encode("utf-8") + b"\n"
    except UnicodeEncodeError:
        return dump_json(value, ensure_ascii=True).encode("ascii") + b"\n"


def _as_json(value: Any) -> object:
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "replace")
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return str(value)


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def csv_cell(value: object) -> object:
    """Return a value that no spreadsheet takes for a formula: such text gets an apostrophe."""
    if isinstance(value, str) and value.lstrip(" ").startswith(_FORMULA):
        return f"'{value}"
    return value


@contextlib.contextmanager
def on_disk(content: str) -> Iterator[None]:
    """Raise InputError, which names the temporary directory, where it refuses ``content``."""
    try:
        yield
    except OSError as error:
        # Where it is None no directory took a single byte, and to ask again would fail again.
        folder = tempfile.tempdir or "the temporary directory"
        raise InputError(f"{folder}: cannot hold {content}: {error.strerror}") from error


class ParquetRows:
    """Rows on their way to Parquet; ``types`` of some columns are known by their Arrow names."""

    def __init__(self, path: str, types: Mapping[str, str]) -> None:
        import pyarrow as pa

        self._pa = pa
        self._misfits = (pa.ArrowException, OverflowError)
        self._fixed = {name: _data_type(pa, kind) for name, kind in types.items()}
        # In order of first appearance; None marks a column of JSON text.
        self._types: dict[str, pa.DataType | None] = {}
        self._rows: list[Row] = []
        self._chars = 0
        self._held = f"the rows of {path} before they are written"
        with on_disk(self._held):
            self._spool: IO[bytes] = tempfile.TemporaryFile(prefix="consensuspr-")  # noqa: SIM115

    def discard(self) -> None:
        """Remove spooled rows; a write that failed has raised before, and is tried again here."""
        with contextlib.suppress(OSError):
            self._spool.close()

    def write(self, row: Row) -> None:
        """Take one row; it is on disk at the latest after 2,048 rows or about 16 MB."""
        self._rows.append(row)
        self._chars += sum(len(value) for value in row.values() if isinstance(value, str))
        if len(self._rows) >= CHUNK_ROWS or self._chars >= CHUNK_CHARS:
            self._spool_rows()

    def _spool_rows(self) -> None:
        if not self._rows:
            return
        for name in dict.fromkeys(name for row in self._rows for name in row):
            self._widen(name, [row.get(name) for row in self._rows])
        # Pickle keeps bytes and dates; nobody else sees this file.
        with on_disk(self._held):
            pickle.dump(self._rows, self._spool, protocol=pickle.HIGHEST_PROTOCOL)
            self._spool.flush()
        self._rows, self._chars = [], 0

    def _spooled(self) -> Iterator[list[Row]]:
        with on_disk(self._held):
            self._spool.seek(0)
            while True:
                try:
                    yield pickle.load(self._spool)
                except EOFError:
                    return

    def _widen(self, name: str, values: list[Any]) -> None:
        """Widen the type of a column so that it fits these values too."""
        kind = self._types.get(name, self._pa.null())
        if name in self._fixed:
            kind = self._fixed[name]
        elif kind is not None:
            try:
                # Built and not only inferred: inference takes [False, []] for truth values.
                kinds = (kind, arrow_array(self._pa, values, None).type)
                schemas = [self._pa.schema([("column", each)]) for each in kinds]
                both = self._pa.unify_schemas(schemas, promote_options="permissive")
                kind = both.field(0).type
            except self._misfits:
                kind = None
        self._types[name] = kind

    def _settle_types(self) -> None:
        """Give up a type that does not hold after all, such as 2**60 in a column of floats."""
        found = {name: kind for name, kind in self._types.items() if name not in self._fixed}
        for name, kind in found.items():
            if kind is not None and _has_empty_struct(self._pa, kind):
                self._types[name] = None
        for rows in self._spooled():
            for name in found:
                if self._types[name] is not None:
                    try:
                        self._array(name, rows)
                    except self._misfits:
                        self._types[name] = None

    def write_to(self, stream: BinaryIO) -> None:
        """Write all rows as Parquet."""
        import pyarrow.parquet as pq

        self._spool_rows()
        self._settle_types()
        text, field = self._pa.string(), self._pa.field
        schema = self._pa.schema(
            [
                field(name, text, metadata=JSON_MARK) if kind is None else field(name, kind)
                for name, kind in self._types.items()
            ]
        )
        with pq.ParquetWriter(stream, schema, compression="zstd") as out:
            for rows in self._spooled():
                arrays = [self._array(name, rows) for name in self._types]
                out.write_table(self._pa.Table.from_arrays(arrays, schema=schema))

    def _array(self, name: str, rows: Sequence[Row]) -> pa.Array:
        kind = self._types[name]
        values = [row.get(name) for row in rows]
        if kind is None:
            values = [None if value is None else dump_json(value) for value in values]
            kind = self._pa.string()
        return arrow_array(self._pa, values, kind)


def arrow_array(pa: Any, values: list[Any], kind: pa.DataType | None) -> pa.Array:
    """Return the values as an array; lone surrogates, which UTF-8 lacks, become U+FFFD."""
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        return pa.array([_without_surrogates(value) for value in values], kind)


def _data_type(pa: Any, kind: str) -> pa.DataType:
    """Return the Arrow type of an alias such as ``double`` or ``list<bool>``."""
    if kind.startswith("list<"):
        return pa.list_(_data_type(pa, kind[len("list<") : -1]))
    return pa.type_for_alias(kind)


def _has_empty_struct(pa: Any, kind: pa.DataType) -> bool:
    """Return whether the type holds an object without keys, which Parquet cannot store."""
    if pa.types.is_struct(kind):
        fields = [kind.field(position) for position in range(kind.num_fields)]
        return not fields or any(_has_empty_struct(pa, field.type) for field in fields)
    return pa.types.is_list(kind) and _has_empty_struct(pa, kind.value_type)


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {key: _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_surrogates(item) for item in value]
    return value
