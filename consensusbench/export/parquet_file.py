"""Rows of a known schema written as one Parquet file, a row group at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

from consensuspr.data import Row

if TYPE_CHECKING:
    import pyarrow as pa

# Rows are held until a row group is full: 2,048 rows, or some 16 MB where they are long.
GROUP_ROWS = 2048
GROUP_CHARS = 16 << 20


class ParquetFile:
    """Takes rows one by one.

    Args:
        stream: where to.
        schema: of the rows; a key that a row lacks is null.

    Attributes:
        rows: how many there are.
        nbytes: bytes of all rows in Arrow's memory layout, of those written so far.
    """

    def __init__(self, stream: BinaryIO, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self._schema = schema
        self._out = pq.ParquetWriter(stream, schema, compression="zstd")
        self._group: list[Row] = []
        self._chars = 0
        self.rows = 0
        self.nbytes = 0

    def write(self, row: Row) -> None:
        """Take a row; it is held until its group is full."""
        self.rows += 1
        self._group.append(row)
        self._chars += _chars(row)
        if len(self._group) >= GROUP_ROWS or self._chars >= GROUP_CHARS:
            self._flush()

    def close(self) -> None:
        """Write what is held, and the file's end."""
        self._flush()
        self._out.close()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._group:
            table = pa.Table.from_pylist(self._group, self._schema)
            self.nbytes += table.nbytes
            self._out.write_table(table)
            self._group, self._chars = [], 0


def _chars(value: Any) -> int:
    """Return the characters of all strings in a row, which make nearly all of its size."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_chars, value.values()))
    if isinstance(value, list):
        return sum(map(_chars, value))
    return 0
