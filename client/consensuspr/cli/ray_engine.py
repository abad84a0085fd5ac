"""``consensuspr score --engine ray``: the same file and the same figures, from all cores.

What happens on the cluster is ``consensuspr.ray.file_scoring``; here parts of the file come
back in order and are written and counted as if they had been scored in this process.  A bad
row stops the run where it stands, and not before anything is scored: finding it first would
be one core's work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from consensuspr.cli.core_note import load_core
from consensuspr.cli.file_scoring import FileScores
from consensuspr.cli.summary import Summary
from consensuspr.data import (
    JsonRows,
    OnError,
    ReadReport,
    RowWriter,
    is_parquet_output,
    refuse_empty,
)
from consensuspr.data.formats import open_data
from consensuspr.errors import InputError
from consensuspr.scoring import Identity
from consensuspr.wire.options import ScoreOptions

if TYPE_CHECKING:  # --help waits for neither
    from consensuspr.ray.parts import ScoredPart


class Engine(StrEnum):
    """Where a file is scored that no server scores."""

    LOCAL = "local"
    RAY = "ray"


@contextmanager
def open_parts(
    rollouts: Path, dataset: str | None, options: ScoreOptions, on_error: OnError, output: Path
) -> Iterator[Iterator[ScoredPart]]:
    """Start scoring a file on Ray; end it with the block.

    Args:
        rollouts: the file.
        dataset: path of the dataset.
        options: how to score.
        on_error: what a bad row does.
        output: where the rows will be written.

    Raises:
        InputError: no dataset was given, or Ray is not installed.
        DataError: the dataset cannot be read.
    """
    if dataset is None:
        raise InputError("give --dataset PATH to score with --engine ray")
    load_core()
    from consensuspr.ray.file_scoring import score_parts
    from consensuspr.ray.parts import PartOptions
    from consensuspr.ray.require import require_ray
    from consensuspr.scoring import DatasetIndex

    require_ray("ray.data")
    open_data(rollouts)[0].close()  # a wrong path is found before a cluster is started
    # Rows of JSON are made where they are scored; those of Parquet share a schema.
    as_lines = not is_parquet_output(output)
    how = PartOptions(str(rollouts), options, on_error, as_lines=as_lines)
    with closing(score_parts(DatasetIndex.load(dataset), how)) as parts:
        yield parts


def collect_parts(
    parts: Iterable[ScoredPart],
    out: RowWriter,
    read: ReadReport,
    rollouts: Path,
    advance_to: Callable[[int], None],
) -> FileScores:
    """Write parts and count them up.

    Args:
        parts: in the order of the file.
        out: takes the scored rows.
        read: filled with the counts of good and skipped rows.
        rollouts: the file, as messages name it.
        advance_to: told how many rollouts are scored so far.

    Raises:
        DataError: a bad row with ``"stop"``, damage of the file, or not one good row.
    """
    summary = Summary()
    identity: Identity | None = None
    for part in parts:
        _add(read, part.report)
        if part.fault is not None:
            raise part.fault
        if isinstance(out, JsonRows):
            out.write_lines(part.lines)
        for row in part.rows:
            out.write(row)
        for source, score in part.counted:
            summary.add(source, score)
        identity = identity or part.identity
        advance_to(summary.overall.rollouts)
    refuse_empty(str(rollouts), read)
    assert identity is not None, "a good row was scored"
    return FileScores(summary, identity)


def _add(read: ReadReport, part: ReadReport) -> None:
    """Count the rows of a part, and log why some were skipped while there are few."""
    read.rows += part.rows
    read.skipped += part.skipped - len(part.reasons)
    for fault in part.reasons:
        read.skip(fault)
