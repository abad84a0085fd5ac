"""All records of a dataset in one block of bytes, in memory or mapped from a file.

::

    0    "CPRINDEX"                      8 bytes
    8    layout version, header length   2 × u32, little-endian like all that follows
    16   header                          JSON, padded with spaces to a multiple of 8
         start of each id, and one end   (n + 1) × u64
         start of each record, one end   (n + 1) × u64
         ids                             UTF-8, sorted as bytes
         records                         in the same order (index_record.py)
         SHA-256 of all before           32 bytes

An index built in memory and one mapped from a snapshot are the same bytes read by the same
code.  Nothing is turned into Python objects before it is asked for, so that a problem costs
its record, its id and 16 bytes, and processes that map one snapshot share its pages.

Look-up is a binary search: some 5 µs among 5,577 ids and twice that among a million, once
for each distinct problem of a batch.  A hash table would win little of that and its order
would have to be part of the file format.
"""

from __future__ import annotations

import hashlib
import io
import json
import mmap
import os
import struct
import sys
from array import array
from collections.abc import Iterator
from typing import Any, TypeAlias

from consensuspr.data import atomic_file
from consensuspr.errors import DataError

LAYOUT_VERSION = 1

_MAGIC = b"CPRINDEX"
_PREFIX = struct.Struct("<8sII")
_BOUNDS = struct.Struct("<QQ")
_CHECKSUM_BYTES = 32

Buffer: TypeAlias = bytes | mmap.mmap


class IndexImage:
    """Read access to the block; safe to share between threads, since nothing changes."""

    def __init__(self, buffer: Buffer) -> None:
        """Take a block that :func:`build_image` made."""
        _, _, header_bytes = _PREFIX.unpack_from(buffer, 0)
        start = _PREFIX.size
        self.buffer = buffer
        self.header: dict[str, Any] = json.loads(buffer[start : start + header_bytes])
        self.num_problems: int = self.header["num_problems"]
        self._id_bounds = start + header_bytes
        self._record_bounds = self._id_bounds + 8 * (self.num_problems + 1)
        self._ids = self._record_bounds + 8 * (self.num_problems + 1)
        self._records = self._ids + int(self.header["id_bytes"])

    @property
    def nbytes(self) -> int:
        """Size of the block."""
        return len(self.buffer)

    def find(self, problem_id: str) -> int | None:
        """Return the position of a problem, None where it is unknown."""
        wanted = problem_id.encode("utf-8", "surrogatepass")
        low, high = 0, self.num_problems
        while low < high:
            middle = (low + high) // 2
            found = self._id(middle)
            if found < wanted:
                low = middle + 1
            elif found > wanted:
                high = middle
            else:
                return middle
        return None

    def problem_id(self, position: int) -> str:
        """Return the id at a position in [0, num_problems)."""
        return self._id(position).decode("utf-8", "surrogatepass")

    def record(self, position: int) -> bytes:
        """Return the record at a position in [0, num_problems)."""
        start, end = _BOUNDS.unpack_from(self.buffer, self._record_bounds + 8 * position)
        return self.buffer[self._records + start : self._records + end]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the block to a file, which appears complete or not at all."""
        with atomic_file(path) as stream:
            stream.write(self.buffer)

    def close(self) -> None:
        """Release the mapping, if there is one; the image must not be used afterwards."""
        if isinstance(self.buffer, mmap.mmap):
            self.buffer.close()

    def _id(self, position: int) -> bytes:
        start, end = _BOUNDS.unpack_from(self.buffer, self._id_bounds + 8 * position)
        return self.buffer[self._ids + start : self._ids + end]


class Records:
    """Records as they come, in one growing buffer.

    Not a bytes object for each: a million of them would leave the heap in pieces, twice the
    size of what is kept.
    """

    def __init__(self) -> None:
        """Start with none."""
        self._ids: list[bytes] = []
        self._bounds = array("Q", [0])
        self._data = io.BytesIO()

    def append(self, problem_id: str, record: bytes) -> None:
        """Add the record of a problem."""
        self._ids.append(problem_id.encode("utf-8", "surrogatepass"))
        self._data.write(record)
        self._bounds.append(self._bounds[-1] + len(record))

    def sorted_by_id(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield ids and records in the order of the ids' bytes."""
        data = self._data.getvalue()
        for at in sorted(range(len(self._ids)), key=self._ids.__getitem__):
            yield self._ids[at], data[self._bounds[at] : self._bounds[at + 1]]


def build_image(records: Records, header: dict[str, Any]) -> bytes:
    """Return the block for records; ``header`` is what else its header shall say."""
    ids, record_bounds, id_bounds = io.BytesIO(), array("Q", [0]), array("Q", [0])
    for problem_id, record in records.sorted_by_id():
        ids.write(problem_id)
        id_bounds.append(ids.tell())
        record_bounds.append(record_bounds[-1] + len(record))
    header = {"num_problems": len(id_bounds) - 1, "id_bytes": ids.tell(), **header}
    text = json.dumps(header, sort_keys=True).encode()
    text += b" " * (-len(text) % 8)
    block = io.BytesIO()
    block.write(_PREFIX.pack(_MAGIC, LAYOUT_VERSION, len(text)) + text)
    for bounds in (id_bounds, record_bounds):
        if sys.byteorder == "big":
            bounds.byteswap()
        block.write(bounds.tobytes())
    block.write(ids.getvalue())
    for _, record in records.sorted_by_id():
        block.write(record)
    with block.getbuffer() as written:
        checksum = hashlib.sha256(written).digest()
    block.write(checksum)
    return block.getvalue()


def map_image(path: str | os.PathLike[str]) -> IndexImage:
    """Map a snapshot and verify all of it.

    The check reads the file once (about a second per gigabyte), which also brings it into
    the page cache that all processes share.

    Raises:
        DataError: no snapshot, of another layout version, cut short or damaged.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb") as stream:
            if os.fstat(stream.fileno()).st_size < _PREFIX.size + _CHECKSUM_BYTES:
                raise DataError(name, None, "is no snapshot of a dataset index")
            block = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise DataError(name, None, f"cannot be mapped: {error.strerror}") from error
    try:
        _verify(block, name)
        return IndexImage(block)
    except BaseException:
        block.close()
        raise


def _verify(block: mmap.mmap, name: str) -> None:
    magic, version, _ = _PREFIX.unpack_from(block, 0)
    if magic != _MAGIC:
        raise DataError(name, None, "is no snapshot of a dataset index")
    if version != LAYOUT_VERSION:
        reason = f"is a snapshot of layout {version}, layout {LAYOUT_VERSION} is read"
        raise DataError(name, None, reason)
    digest = hashlib.sha256()
    for piece in _pieces(block, len(block) - _CHECKSUM_BYTES):
        digest.update(piece)
    if digest.digest() != block[-_CHECKSUM_BYTES:]:
        raise DataError(name, None, "is a damaged snapshot: its checksum does not hold")


def _pieces(block: mmap.mmap, end: int) -> Iterator[bytes]:
    """Yield copies of a megabyte each: a view of the mapping would keep it from closing."""
    step = 1 << 20
    for start in range(0, end, step):
        yield block[start : min(start + step, end)]
