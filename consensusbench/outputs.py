"""Checks of outputs before anything is done.

Every output replaces the file of its name as a whole.  A typing error must not replace rollouts
that were paid for by the table made of them, nor show only when all work is done.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeAlias

from consensuspr.errors import InputError

AnyPath: TypeAlias = str | os.PathLike[str]

# Suffixes of tables; readers would take rows under such a name for one.
_NOT_ROWS: Final = frozenset((".csv", ".tsv", ".xlsx"))


def check_outputs(
    outputs: Iterable[AnyPath | None],
    inputs: Iterable[AnyPath | None],
    *,
    makes_folders: bool = False,
) -> None:
    """Check that outputs are different files in existing folders, and no inputs.

    Raises:
        InputError: two of the outputs are the same file, or one of them is an input, links
            followed, or its folder is missing, or it has the suffix of a table.
    """
    read = [Path(path) for path in inputs if path is not None]
    written: set[Path] = set()
    for path in (Path(path) for path in outputs if path is not None):
        suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
        if suffix in _NOT_ROWS:
            raise InputError(
                f"{path} would hold no {suffix.removeprefix('.')}: rows are written to .jsonl, "
                ".jsonl.gz or .parquet"
            )
        resolved = path.resolve()
        if resolved in written:
            raise InputError(f"{path} cannot hold two outputs at once")
        written.add(resolved)
        if not makes_folders and not resolved.parent.exists():
            raise InputError(f"{path.parent} does not exist: make it first")
        if path.exists() and any(known.exists() and path.samefile(known) for known in read):
            raise InputError(f"{path} is read by this command; write elsewhere")
