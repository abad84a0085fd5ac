"""Nameless files in the temporary directory, for what does not fit in memory."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from typing import Protocol

from consensuspr.errors import InputError


@contextlib.contextmanager
def on_disk(what: str) -> Iterator[None]:
    """Name the temporary directory where it refuses a write or a read.

    Args:
        what: lies there.

    Raises:
        InputError: in place of an OSError of the block.
    """
    try:
        yield
    except OSError as error:
        # Where it is None no directory took a single byte, and to ask again would fail again.
        folder = tempfile.tempdir or "the temporary directory"
        raise InputError(f"{folder}: cannot hold {what}: {error.strerror}") from error


class Closable(Protocol):
    """A temporary file of any kind."""

    def close(self) -> None:
        """Close it."""


def discard(file: Closable) -> None:
    """Close a temporary file whose content nobody wants any more.

    One that could not take a write tries it again when it closes: that it failed is said already,
    and a second error would hide the first.
    """
    with contextlib.suppress(OSError):
        file.close()
