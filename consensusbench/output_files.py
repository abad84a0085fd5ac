"""Outputs that would destroy an input, refused before anything is done.

Every output replaces the file of its name as a whole.  A slip of the hand must not replace the
rollouts that were paid for by the table made of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from consensuspr.errors import InputError

AnyPath: TypeAlias = str | os.PathLike[str]


def check_outputs(outputs: Iterable[AnyPath | None], inputs: Iterable[AnyPath | None]) -> None:
    """Refuse outputs that are one file, or a file that is read.

    Args:
        outputs: files that will be written, None for those that were not asked for.
        inputs: files that are read, likewise.

    Raises:
        InputError: two of the outputs are the same file, or one of them is an input, links
            followed.
    """
    read = [Path(path) for path in inputs if path is not None]
    written: set[Path] = set()
    for path in (Path(path) for path in outputs if path is not None):
        resolved = path.resolve()
        if resolved in written:
            raise InputError(f"{path} cannot hold two outputs at once")
        written.add(resolved)
        if path.exists() and any(one.exists() and path.samefile(one) for one in read):
            raise InputError(f"{path} is read by this command; write elsewhere")
