"""A dataset prepared ahead: its index written to a file that any process maps at once."""

from __future__ import annotations

import os
from collections.abc import Callable

from consensuspr.data import OnError, ReadReport, read_problem_rows
from consensuspr.data.formats import PREPARED_SUFFIX
from consensuspr.errors import InputError
from consensuspr.scoring.deriving import DeriveReport, derive_missing, forget_derived
from consensuspr.scoring.index_build import build_index
from consensuspr.scoring.index_image import IndexImage


def is_prepared_output(path: str | os.PathLike[str]) -> bool:
    """Say whether a path is named as a prepared dataset is."""
    return os.path.splitext(os.fspath(path))[1].lower() == PREPARED_SUFFIX


def prepare_dataset(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    again: bool = False,
    on_error: OnError = "stop",
    processes: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[ReadReport, DeriveReport]:
    """Write the index of a dataset, equal forms filled in where it stores none.

    :meth:`DatasetIndex.load` takes the file in the dataset's place, with the default ``derive``.

    Args:
        source: dataset in any format that is read.
        target: output; never the source, which it cannot stand for where texts are wanted.
        again: derive anew where forms are stored already.
        on_error: what a bad row does, as for :func:`consensuspr.data.read_problems`.
        processes: as for :func:`consensuspr.scoring.deriving.derive_missing`.
        progress: called with the number of problems so far.

    Raises:
        DataError: the dataset is bad.
        InputError: the target is the source or cannot be written, or the temporary directory
            has no room for a large dataset.
    """
    if os.path.exists(source) and os.path.exists(target) and os.path.samefile(source, target):
        raise InputError(f"{os.fspath(target)}: is the dataset itself, which would be lost")
    read, derived = ReadReport(), DeriveReport()
    rows = read_problem_rows(source, on_error, read)
    filled = derive_missing(forget_derived(rows) if again else rows, derived, processes)
    problems = (problem for problem, _ in filled)
    image = IndexImage(build_index(os.fspath(source), problems, read, "missing", progress))
    try:
        image.save(target)
    finally:
        image.close()
    return read, derived
