"""Files that appear complete or not at all.

The content goes to a temporary file in the target's directory, which takes the target's
name only once all of it is on disk.  A crash or an error leaves the old file, if any, as
it was.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from typing import BinaryIO

from consensuspr.errors import InputError


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a binary file that replaces ``path`` when the block ends without an error.

    A symbolic link is followed, so that the link stays one.

    Raises:
        InputError: the target cannot be written, or is not a regular file (renaming onto a
            device such as ``/dev/null`` would replace the device).
    """
    name = os.fspath(path)
    target = os.path.realpath(name)
    if os.path.lexists(target) and not os.path.isfile(target):
        raise InputError(f"{name}: is not a regular file and cannot be replaced")
    folder, base = os.path.split(target)
    temporary = os.path.join(folder, f".{base[:200]}.{secrets.token_hex(6)}.tmp")
    try:
        # Not tempfile: its files are private, and the result should follow the umask.
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
        stream = os.fdopen(os.open(temporary, flags, 0o666), "w+b")
    except OSError as error:
        raise InputError(f"{name}: cannot be written: {error.strerror}") from error
    try:
        with stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync_folder(folder)


def _sync_folder(folder: str) -> None:
    """Make the rename itself survive a power cut, where the system lets folders be synced."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
