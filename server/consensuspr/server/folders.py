"""Temporary folders that are removed even if their process is killed."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from consensuspr.server.logs import LOGGER_NAME

# A younger one may not be locked yet.
FOLDER_AGE_S = 60.0

_log = logging.getLogger(LOGGER_NAME)


def temporary_folder(prefix: str, stack: contextlib.ExitStack) -> Path:
    """Make a folder of this process, which is removed when ``stack`` is left.

    A killed process cannot remove its folder.  So each process holds a lock on its own, and removes
    those of the same user and prefix that nobody holds; mapped files stay readable.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError), _opened(left) as descriptor:
            found = os.fstat(descriptor)
            if found.st_uid == os.geteuid() and time.time() - found.st_mtime > FOLDER_AGE_S:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left)
                _log.warning("removed %s, which a killed process had left", left)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    descriptor = stack.enter_context(_opened(folder))
    with contextlib.suppress(OSError):  # no locks on this file system: it is left alone then
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return folder


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
