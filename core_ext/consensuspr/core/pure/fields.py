"""How many fields a message in protobuf's wire format has, counted before it is parsed.

Two bytes may be a field that takes a hundred once it is parsed, so that the size of a message does
not bound the memory that it asks for; the number of its fields does.  What is length-delimited is
stepped over unless it is a message, so that counting takes time by the fields and not by the bytes.

A *table* says which fields are messages: 32 bytes for each kind of message, the entry of a field's
number being the kind of what it holds, 0 where that is no message.  Kind 0 is the message itself,
which no other one holds.  Fields of higher numbers are taken for no messages.
"""

from __future__ import annotations

import contextlib
from typing import Final

KIND_FIELDS: Final = 32
_MAX_SHIFT: Final = 63
_VARINT, _EIGHT_BYTES, _LENGTH, _GROUP, _GROUP_END, _FOUR_BYTES = range(6)


class _Stop(Exception):
    """More is not to be counted."""


def count_fields(message: bytes, table: bytes, limit: int) -> int:
    """Return how many fields a message has, those of the messages in it included.

    Known or not, repeated or not, each counts as often as it stands there.  Counting stops past
    ``limit``, where ``limit + 1`` is returned, and where the bytes are no message, which is for
    its parser to tell.

    Raises:
        ValueError: the table has no whole kinds, or names one that it has not.
    """
    if not table or len(table) % KIND_FIELDS:
        raise ValueError(f"a table has {KIND_FIELDS} bytes a kind, got {len(table)}")
    for kind in table:
        if kind * KIND_FIELDS >= len(table):
            raise ValueError(f"the table has no kind {kind}")
    reading = _Reading(message, table, limit)
    with contextlib.suppress(_Stop):
        reading.read(0, len(message), 0)
    return reading.count


class _Reading:
    def __init__(self, data: bytes, table: bytes, limit: int) -> None:
        self._data = data
        self._table = table
        self._limit = limit
        self.count = 0

    def read(self, at: int, end: int, kind: int) -> None:
        """Count the fields in [at, end)."""
        while at < end:
            self.count += 1
            if self.count > self._limit:
                raise _Stop
            tag, at = self._varint(at, end)
            number, wire = tag >> 3, tag & 7
            if wire == _LENGTH:
                size, at = self._varint(at, end)
                if size > end - at:
                    raise _Stop
                if number < KIND_FIELDS and (inner := self._table[kind * KIND_FIELDS + number]):
                    self.read(at, at + size, inner)
                at += size
            elif wire == _VARINT:
                _, at = self._varint(at, end)
            elif wire == _EIGHT_BYTES:
                at += 8
            elif wire == _FOUR_BYTES:
                at += 4
            elif wire not in (_GROUP, _GROUP_END):
                raise _Stop

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        """Return a number and where it ends."""
        number = shift = 0
        while at < end and shift <= _MAX_SHIFT:
            byte = self._data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number & 0xFFFF_FFFF_FFFF_FFFF, at
            shift += 7
        raise _Stop
