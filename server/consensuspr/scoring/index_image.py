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
Building takes little memory too: what is beyond a bound lies in a nameless temporary file
and is mapped from there, so that the system may take the pages back.

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
import tempfile
from array import array
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, BinaryIO, TypeAlias

from consensuspr.data import atomic_file
from consensuspr.data.formats import PREPARED_MAGIC
from consensuspr.data.temporary import discard, on_disk
from consensuspr.errors import DataError

LAYOUT_VERSION = 3

_PREFIX = struct.Struct("<8sII")
_BOUNDS = struct.Struct("<QQ")
_CHECKSUM_BYTES = 32
_PIECE_BYTES = 1 << 20

# Records of more bytes than this are put together on disk: those of 5,577 problems take less
# than 10 MB, those of a million more than 1 GB.
MAX_MEMORY_BYTES = 64 << 20

_HELD = "a large dataset while it is loaded"

Buffer: TypeAlias = bytes | mmap.mmap


class IndexImage:
    """Read access to the block; safe to share between threads, since nothing changes."""

    def __init__(self, buffer: Buffer) -> None:
        """Take a block that :func:`build_image` made."""
        _, _, header_bytes = _PREFIX.unpack_from(buffer, 0)
        start = _PREFIX.size
        self.buffer = buffer
        self.header: dict[str, Any] = json.loads(buffer[start : start + header_bytes])
        self.num_problems: int = self.header["counts"]["num_problems"]
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
            for start in range(0, len(self.buffer), _PIECE_BYTES):
                piece = self.buffer[start : start + _PIECE_BYTES]
                stream.write(piece)
                if isinstance(self.buffer, mmap.mmap):
                    # Back to the page cache, or all of a large dataset would become resident.
                    self.buffer.madvise(mmap.MADV_DONTNEED, start, len(piece))

    def close(self) -> None:
        """Release the mapping, if there is one; the image must not be used afterwards."""
        if isinstance(self.buffer, mmap.mmap):
            self.buffer.close()

    def _id(self, position: int) -> bytes:
        start, end = _BOUNDS.unpack_from(self.buffer, self._id_bounds + 8 * position)
        return self.buffer[self._ids + start : self._ids + end]


class Records:
    """Records as they come, in one growing buffer, which moves to disk where it gets large.

    To be closed.  Not a bytes object for each: a million of them would leave the heap in pieces,
    twice the size of what is kept.
    """

    def __init__(self) -> None:
        """Start with none."""
        self._ids: list[str] = []
        self._bounds = array("Q", [0])
        self._data = tempfile.SpooledTemporaryFile(MAX_MEMORY_BYTES, prefix="consensuspr-")  # noqa: SIM115

    def close(self) -> None:
        """Let go of the records."""
        discard(self._data)

    @property
    def nbytes(self) -> int:
        """Size of all records."""
        return self._bounds[-1]

    def append(self, problem_id: str, record: bytes) -> None:
        """Add the record of a problem.

        Raises:
            InputError: the temporary directory has no room for it.
        """
        with on_disk(_HELD):
            self._data.write(record)
        self._ids.append(problem_id)
        self._bounds.append(self._bounds[-1] + len(record))

    def end(self) -> None:
        """Bring what is buffered to its place: no more records come.

        Raises:
            InputError: the temporary directory has no room for it.
        """
        with on_disk(_HELD):
            self._data.flush()

    def order(self) -> array[int]:
        """Return the positions in the order of the ids' bytes, which is that of their letters."""
        return array("Q", sorted(range(len(self._ids)), key=self._ids.__getitem__))

    def ids(self, order: Iterable[int]) -> Iterator[bytes]:
        """Yield the ids at positions."""
        for at in order:
            yield self._ids[at].encode("utf-8", "surrogatepass")

    def sizes(self, order: Iterable[int]) -> Iterator[int]:
        """Yield the sizes of the records at positions."""
        for at in order:
            yield self._bounds[at + 1] - self._bounds[at]

    def records(self, order: Iterable[int]) -> Iterator[bytes]:
        """Yield the records at positions, once :meth:`end` was called.

        Raises:
            InputError: the temporary directory does not give them back.
        """
        with on_disk(_HELD):
            for at in order:
                self._data.seek(self._bounds[at])
                yield self._data.read(self._bounds[at + 1] - self._bounds[at])


def build_image(records: Records, order: array[int], header: dict[str, Any]) -> Buffer:
    """Return the block for records.

    Args:
        records: of all problems.
        order: what :meth:`Records.order` says of them.
        header: what else the block's header shall say, ``counts`` with ``num_problems`` in it.

    Raises:
        InputError: the temporary directory has no room for it.
    """
    if records.nbytes <= MAX_MEMORY_BYTES:
        memory = io.BytesIO()
        _write_image(records, order, header, memory)
        return memory.getvalue()
    with on_disk(_HELD), tempfile.TemporaryFile(prefix="consensuspr-") as file:
        _write_image(records, order, header, file)
        file.flush()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _write_image(
    records: Records, order: array[int], header: dict[str, Any], stream: BinaryIO
) -> None:
    id_bounds = _bounds(map(len, records.ids(order)))
    header = {"id_bytes": id_bounds[-1], **header}
    text = json.dumps(header, sort_keys=True).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()

    def write(piece: bytes) -> None:
        digest.update(piece)
        stream.write(piece)

    write(_PREFIX.pack(PREPARED_MAGIC, LAYOUT_VERSION, len(text)) + text)
    for bounds in (id_bounds, _bounds(records.sizes(order))):
        if sys.byteorder == "big":
            bounds.byteswap()
        write(bounds.tobytes())
    for problem_id in records.ids(order):
        write(problem_id)
    for record in records.records(order):
        write(record)
    stream.write(digest.digest())


def _bounds(sizes: Iterable[int]) -> array[int]:
    return array("Q", accumulate(sizes, initial=0))


def is_image(path: str | os.PathLike[str]) -> bool:
    """Say whether a file begins as a snapshot does; False where it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read(len(PREPARED_MAGIC)) == PREPARED_MAGIC
    except OSError:
        return False


def map_image(path: str | os.PathLike[str]) -> IndexImage:
    """Map a snapshot and verify all of it.

    The check reads the file once (about a second per gigabyte), past the mapping: pages that no
    look-up touches stay out of this process and in the page cache that all processes share.

    Raises:
        DataError: no snapshot, of another layout version, cut short or damaged.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb", buffering=0) as stream:
            _verify(stream, name)
            block = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise DataError(name, None, f"cannot be mapped: {error.strerror}") from error
    return IndexImage(block)


def _verify(stream: BinaryIO, name: str) -> None:
    size = os.fstat(stream.fileno()).st_size
    prefix = stream.read(_PREFIX.size)
    if not prefix.startswith(PREPARED_MAGIC):
        raise DataError(name, None, "is no snapshot of a dataset index")
    if size < _PREFIX.size + _CHECKSUM_BYTES:
        raise DataError(name, None, "is a damaged snapshot: it is cut short")
    version = _PREFIX.unpack(prefix)[1]
    if version != LAYOUT_VERSION:
        reason = f"is a snapshot of layout {version}, layout {LAYOUT_VERSION} is read; make it anew"
        raise DataError(name, None, reason)
    digest = hashlib.sha256(prefix)
    left = size - len(prefix) - _CHECKSUM_BYTES
    while left and (piece := stream.read(min(left, _PIECE_BYTES))):
        digest.update(piece)
        left -= len(piece)
    if digest.digest() != stream.read(_CHECKSUM_BYTES):
        raise DataError(name, None, "is a damaged snapshot: its checksum does not hold")
