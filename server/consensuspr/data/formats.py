"""Which format a file is in: decided by its first bytes, since names lie.

A ``.jsonl`` that is gzip'd and a ``.gz`` that is not both read well.  A compression that
is not supported is named, which helps more than a complaint about broken text.  A name is
looked at for that alone: what is called ``*.index`` and holds no text was a prepared dataset.
"""

from __future__ import annotations

import io
import os
from enum import Enum
from typing import BinaryIO

from consensuspr.errors import DataError

# A prepared dataset is no format that is read here, but one that a caller may name by mistake.
PREPARED_MAGIC = b"CPRINDEX"
PREPARED_SUFFIX = ".index"

_UNSUPPORTED = (
    (b"\x28\xb5\x2f\xfd", "is zstd-compressed"),
    (b"BZh", "is bzip2-compressed"),
    (b"\xfd7zXZ\x00", "is xz-compressed"),
    (b"PK\x03\x04", "is a zip archive"),
    (b"ARROW1", "is an Arrow IPC file"),
    (PREPARED_MAGIC, "is a prepared dataset, which has no rows"),
    (b"\xff\xfe", "is UTF-16 text"),
    (b"\xfe\xff", "is UTF-16 text"),
)


class Format(Enum):
    """The formats that are read."""

    JSONL = "JSONL"
    GZIP = "gzip'd JSONL"
    PARQUET = "Parquet"


def open_data(path: str | os.PathLike[str]) -> tuple[BinaryIO, Format]:
    """Open a data file for reading and tell its format; nothing is consumed.

    Raises:
        DataError: no such file, a directory, unreadable, empty, or of an unsupported kind.
    """
    name = os.fspath(path)
    try:
        stream = io.BufferedReader(io.FileIO(name), 1 << 18)
    except FileNotFoundError:
        raise DataError(name, None, "no such file") from None
    except IsADirectoryError:
        raise DataError(name, None, "is a directory, not a file") from None
    except OSError as error:
        raise DataError(name, None, f"cannot be read: {error.strerror}") from error
    try:
        return stream, _format(name, stream.peek(8)[:8])
    except BaseException:
        stream.close()
        raise


def _format(name: str, head: bytes) -> Format:
    if not head:
        raise DataError(name, None, "is empty")
    if head.startswith(b"\x1f\x8b"):
        return Format.GZIP
    if head.startswith(b"PAR1"):
        return Format.PARQUET
    for magic, reason in _UNSUPPORTED:
        if head.startswith(magic):
            raise DataError(name, None, f"{reason}; JSONL, gzip'd JSONL and Parquet are read")
    if _was_prepared(name, head):
        reason = "is a damaged prepared dataset: its first bytes are wrong; make it anew"
        raise DataError(name, None, reason)
    return Format.JSONL


def _was_prepared(name: str, head: bytes) -> bool:
    """Say whether bytes of no known kind are more likely a damaged prepared dataset than JSON."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    named = os.path.splitext(name)[1].lower() == PREPARED_SUFFIX
    return PREPARED_MAGIC.startswith(head) or (named and bool(text) and not text.startswith(b"{"))
