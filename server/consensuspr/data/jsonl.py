"""JSON Lines, plain or gzip'd, one row at a time.

A row that cannot be read is yielded as its error rather than raised, so that the caller
may skip it and go on; damage of the file as a whole (a gzip stream that ends early) is
raised, because nobody can tell how many rows are lost with it.

NaN and the infinities are refused although Python's parser takes them: they are not JSON,
and a number that is not one must not travel on unnoticed.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from typing import BinaryIO, NoReturn

from consensuspr.data.schema import Row
from consensuspr.errors import DataError

# One row is held in memory; 100 MB responses exist, gzip bombs of one endless line too.
MAX_LINE_BYTES = 256 << 20

_BOM = b"\xef\xbb\xbf"


def read_jsonl(stream: BinaryIO, path: str) -> Iterator[tuple[int, Row | DataError]]:
    """Yield ``(line, row)`` or ``(line, error)``; blank lines and a leading BOM are skipped."""
    for line, raw in read_lines(stream, path):
        yield line, raw if isinstance(raw, DataError) else parse_line(raw, path, line)


def read_lines(stream: BinaryIO, path: str) -> Iterator[tuple[int, bytes | DataError]]:
    """Do as :func:`read_jsonl`, and leave the lines as they are."""
    for line, raw in _lines(stream, path):
        if isinstance(raw, DataError):
            yield line, raw
            continue
        if line == 1 and raw.startswith(_BOM):
            raw = raw[len(_BOM) :]
        if raw and not raw.isspace():
            yield line, raw


def parse_line(raw: bytes, path: str, line: int) -> Row | DataError:
    """Return the row that a line holds, or why it holds none."""
    try:
        return _row(raw)
    except ValueError as error:
        return DataError(path, line, str(error))


def read_gzip_jsonl(stream: BinaryIO, path: str) -> Iterator[tuple[int, Row | DataError]]:
    """Do as :func:`read_jsonl` on a gzip'd stream.

    Raises:
        DataError: the compressed stream ends early or is damaged.
    """
    with unpacked(stream) as plain:
        yield from read_jsonl(plain, path)


@contextlib.contextmanager
def unpacked(stream: BinaryIO) -> Iterator[BinaryIO]:
    """Open what a gzip'd stream holds."""
    with gzip.GzipFile(fileobj=stream) as plain:
        yield io.BufferedReader(plain, 1 << 18)


def _lines(stream: BinaryIO, path: str) -> Iterator[tuple[int, bytes | DataError]]:
    line = 0
    while True:
        try:
            raw = stream.readline(MAX_LINE_BYTES + 1)
            line += 1
            if len(raw) > MAX_LINE_BYTES:
                while raw and not raw.endswith(b"\n"):
                    raw = stream.readline(1 << 20)
                yield line, DataError(path, line, f"is longer than {MAX_LINE_BYTES} bytes")
                continue
        except EOFError:
            raise DataError(path, line + 1, "the gzip data ends before its end mark") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise DataError(path, line + 1, f"the gzip data is damaged: {error}") from None
        except OSError as error:
            raise DataError(path, line + 1, f"cannot be read: {error.strerror}") from error
        if not raw:
            return
        yield line, raw


def _row(raw: bytes) -> Row:
    """Return the object on one line, or raise ValueError with the reason."""
    try:
        value = _DECODER.decode(raw.decode("utf-8").rstrip())
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 (byte {error.start + 1} of the line)") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error.msg} (column {error.colno})") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    if type(value) is not dict:
        raise ValueError(f"holds {_NAMES[type(value)]}, not an object")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"is not JSON: {name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"is not JSON: the number {text[:40]} is too large")
    return value


def _whole(text: str) -> int:
    # Python refuses to parse more digits than this, in words that help nobody here.
    if len(text) > 4300:
        raise ValueError(f"is not JSON: a number of {len(text)} digits is too long")
    return int(text)


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite, parse_int=_whole)
_NAMES = {
    list: "a list",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a truth value",
    type(None): "null",
}
