"""The score log of a run: every scored sample in files that are read while more come.

``schema`` has the row, which is public; ``files`` the files;
``writer`` takes scored samples, ``reader`` yields them.  Names resolve on first use: a process
that logs nothing does not load Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consensuspr.lazy import lazy_names

if TYPE_CHECKING:
    from consensuspr.score_log.reader import LogReader
    from consensuspr.score_log.schema import COLUMNS, SCHEMA, LoggedPart
    from consensuspr.score_log.writer import ScoreLog, dataset_path, keep_dataset

__all__ = [
    "COLUMNS",
    "SCHEMA",
    "LogReader",
    "LoggedPart",
    "ScoreLog",
    "dataset_path",
    "keep_dataset",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".reader": "LogReader",
        ".schema": "COLUMNS SCHEMA LoggedPart",
        ".writer": "ScoreLog dataset_path keep_dataset",
    },
)
