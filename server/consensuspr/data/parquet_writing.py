"""Parquet out of rows whose columns are known only at the end.

Rollouts carry columns that nobody declared, and a type seen in the first thousand rows
(null, whole numbers) may not be that of the rest.  So rows are spooled to disk while the
narrowest type that fits each column is worked out, and written once it is known.  A column
that no type fits (mixed types, empty objects) becomes JSON text and is marked as such; the
reader of this package turns it back.  Objects of one column share their keys in Parquet: a
key that one of them lacks is null there.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Self

from consensuspr.data.json_text import dump_json
from consensuspr.data.parquet import JSON_MARK
from consensuspr.data.schema import Row
from consensuspr.data.temporary import discard, on_disk
from consensuspr.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_ROWS = 2048
CHUNK_CHARS = 16 << 20  # of strings, which make nearly all of a row's size


class ParquetRows:
    """Collects rows and writes them as Parquet when the block ends without an error."""

    def __init__(self, stream: BinaryIO, path: str, types: Mapping[str, str]) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet  # needed at the end: fail before the work
        except ImportError:
            raise DataError(path, None, "writing Parquet needs pyarrow") from None
        self._pa = pa
        self._stream = stream
        self._fixed = {name: _data_type(pa, kind) for name, kind in types.items()}
        # In order of first appearance; None marks a column of JSON text.
        self._types: dict[str, pa.DataType | None] = {}
        # Columns whose final type is wider than that of some chunk.
        self._widened: set[str] = set()
        self._rows: list[Row] = []
        self._chars = 0
        self._held = f"the rows of {path} before they are written"
        with on_disk(self._held):
            self._spool: IO[bytes] = tempfile.TemporaryFile(prefix="consensuspr-")  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._spool_rows()
                self._settle_types()
                self._write()
        finally:
            discard(self._spool)

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
        # Pickle keeps what JSON would not (bytes, dates); nobody else sees this file.
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
        if name in self._fixed:
            self._types[name] = self._fixed[name]
            return
        known = self._types.get(name, self._pa.null())
        if known is None:
            return
        try:
            # Built and not only inferred: inference takes [False, []] for truth values.
            shown = _array(self._pa, values, None).type
            wider = _widest(self._pa, known, shown)
        except (self._pa.ArrowException, OverflowError):
            self._types[name] = None
            return
        if not (wider == known == shown) and not self._pa.types.is_null(known):
            self._widened.add(name)
        self._types[name] = wider

    def _settle_types(self) -> None:
        """Give up a type that does not hold after all, such as 2**60 in a column of floats."""
        for name, kind in self._types.items():
            if kind is not None and name not in self._fixed and _has_empty_struct(self._pa, kind):
                self._types[name] = None
        doubtful = {name for name in self._widened if self._types[name] is not None}
        if not doubtful:
            return
        for rows in self._spooled():
            for name in sorted(doubtful):
                try:
                    self._array(name, rows)
                except (self._pa.ArrowException, OverflowError):
                    self._types[name] = None
                    doubtful.discard(name)

    def _write(self) -> None:
        import pyarrow.parquet as pq

        schema = self._pa.schema([self._field(name) for name in self._types])
        with pq.ParquetWriter(self._stream, schema, compression="zstd") as out:
            for rows in self._spooled():
                arrays = [self._array(name, rows) for name in self._types]
                out.write_table(self._pa.Table.from_arrays(arrays, schema=schema))

    def _field(self, name: str) -> pa.Field:
        kind = self._types[name]
        if kind is None:
            return self._pa.field(name, self._pa.string(), metadata=JSON_MARK)
        return self._pa.field(name, kind)

    def _array(self, name: str, rows: Sequence[Row]) -> pa.Array:
        kind = self._types[name]
        values = [row.get(name) for row in rows]
        if kind is None:
            values = [None if value is None else dump_json(value) for value in values]
            kind = self._pa.string()
        return _array(self._pa, values, kind)


def _array(pa: Any, values: list[Any], kind: pa.DataType | None) -> pa.Array:
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


def _widest(pa: Any, one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the narrowest type that holds both, or raise ArrowException."""
    if one == other:
        return one
    schemas = [pa.schema([("column", kind)]) for kind in (one, other)]
    return pa.unify_schemas(schemas, promote_options="permissive").field(0).type


def _has_empty_struct(pa: Any, kind: pa.DataType) -> bool:
    """Say whether the type holds an object without keys, which Parquet cannot store."""
    if pa.types.is_struct(kind):
        fields = [kind.field(position) for position in range(kind.num_fields)]
        return not fields or any(_has_empty_struct(pa, field.type) for field in fields)
    if pa.types.is_list(kind):
        return _has_empty_struct(pa, kind.value_type)
    return False


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {key: _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_surrogates(item) for item in value]
    return value
