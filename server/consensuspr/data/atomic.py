"""Files that appear complete or not at all.

The content goes to a temporary file in the target's directory, which takes the target's
name only once all of it is on disk.  A crash or an error leaves the old file, if any, as
it was.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from consensuspr.errors import InputError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a binary file that replaces ``path`` when the block ends without an error.

    A symbolic link is followed, so that the link stays one.

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
        stream = io.BufferedRandom(_Target(os.open(temporary, flags, 0o666), name))
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
