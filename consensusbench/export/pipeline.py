"""A dataset exported, whatever the format: read, selected, written.

A format is a :class:`Layout`: where the rows of each side go, their columns, and how a problem
becomes one.  All else is here: what is left out and why, rows that wait on disk until all have
been seen, files that appear when all are complete.  Memory is bounded by a row group and by
what is remembered of each text (:class:`~consensusbench.export.selection.TextCensus`).
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from consensusbench.export.parquet_file import ParquetFile
from consensusbench.export.report import ExportReport
from consensusbench.export.selection import LeftOut, Side, SidePolicy, TextCensus, text_digest
from consensusbench.output_files import check_outputs
from consensuspr.data import OnError, Problem, ReadReport, Row, atomic_file, read_problems
from consensuspr.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

DEFAULT_VAL_FRACTION = 0.05

_NAME = {Side.TRAIN: "training", Side.VALIDATION: "validation"}


@dataclass(frozen=True, slots=True)
class Export:
    """What to export, and how.

    Attributes:
        dataset: file of problems with nodes.
        output: folder of the files; made where it does not exist.
        val_datasets: files all of whose problems are validation.
        val_fraction: share of the dataset's problems without a split that is validation; None:
            0.05, or none of them where there are ``val_datasets``.
        seed: of that share.
        inline_nodes: put the nodes into the rows, for a server without the dataset.
        without_nodes: export problems without nodes too, which only the outcome reward and the
            curriculum's second stage can score.
        on_error: what a bad row does.
    """

    dataset: str | os.PathLike[str]
    output: str | os.PathLike[str]
    val_datasets: tuple[str | os.PathLike[str], ...] = ()
    val_fraction: float | None = None
    seed: int = 0
    inline_nodes: bool = False
    without_nodes: bool = False
    on_error: OnError = "stop"


class Layout(Protocol):
    """A format of training files."""

    @property
    def files(self) -> Mapping[Side, str]:
        """Path of each side's file, relative to the output folder."""
        ...

    @property
    def needs_both(self) -> bool:
        """Whether a side without a problem is an error."""
        ...

    def row(self, problem: Problem, side: Side) -> Row:
        """Return the row of a problem with a text and a ground truth."""
        ...

    def schema(self) -> pa.Schema:
        """Return the columns, now that all rows have been made."""
        ...

    def finished(self, row: Row, index: int) -> Row:
        """Return a row as it is written, now that all have been made.

        Args:
            row: of :meth:`row`.
            index: its place in its file.
        """
        ...


def write_export(
    export: Export, layout: Layout, progress: Callable[[int], None] = lambda done: None
) -> ExportReport:
    """Write the files of an export.

    Args:
        export: what and how.
        layout: the format.
        progress: called with the number of problems read.

    Returns:
        What was written and what was left out.

    Raises:
        DataError: an input cannot be read, or has a bad row and ``on_error`` is ``stop``.
        InputError: the output cannot be written, or a file would hold no row.
    """
    report, census = ExportReport(), TextCensus()
    with tempfile.TemporaryFile(prefix="consensusbench-") as spool:
        for side, problem in _problems(export, report):
            fault = _spool(spool, census, problem, side, export, layout)
            if fault is not None:
                report.leave_out(fault, problem.problem_id)
            progress(report.read.rows)
        report.files = _files(export, layout, census, report)
        _write(_judged(spool, census, report), layout, report)
    return report


def _problems(export: Export, report: ExportReport) -> Iterator[tuple[Side, Problem]]:
    """Yield every problem with its side."""
    fraction = export.val_fraction
    if fraction is None:
        fraction = 0.0 if export.val_datasets else DEFAULT_VAL_FRACTION
    policy = SidePolicy(fraction, export.seed)
    for problem in read_problems(export.dataset, export.on_error, report.read):
        report.without_split += problem.split is None
        yield policy.side_of(problem), problem
    for path in export.val_datasets:
        # Of its own, since a file without one good row is an error.
        read = ReadReport()
        for problem in read_problems(path, export.on_error, read):
            report.read.rows += 1
            yield Side.VALIDATION, problem
        report.read.skipped += read.skipped
        report.read.reasons += read.reasons


def _spool(
    spool: IO[bytes],
    census: TextCensus,
    problem: Problem,
    side: Side,
    export: Export,
    layout: Layout,
) -> LeftOut | None:
    """Put the row of a problem on disk, or return why it cannot be exported."""
    fault = _fault(problem, export)
    if fault is not None:
        return fault
    row = layout.row(problem, side)
    if not _is_utf8(row):
        return LeftOut.NOT_UTF8
    digest = text_digest(problem.problem)
    assert problem.ground_truth is not None
    census.count(digest, problem.ground_truth, side)
    # Pickle is quick, and nobody else sees this file.
    record = (side, digest, problem.problem_id, problem.data_source, len(problem.nodes), row)
    pickle.dump(record, spool, protocol=pickle.HIGHEST_PROTOCOL)
    return None


def _fault(problem: Problem, export: Export) -> LeftOut | None:
    if not problem.problem.strip():
        return LeftOut.NO_TEXT
    if problem.ground_truth is None or not problem.ground_truth.strip():
        return LeftOut.NO_GROUND_TRUTH
    if not problem.nodes:
        return None if export.without_nodes else LeftOut.NO_NODES
    if export.inline_nodes and not _within_limits(problem):
        return LeftOut.INVALID_NODES
    return None


def _within_limits(problem: Problem) -> bool:
    """Say whether a server would take the nodes with a request."""
    from consensuspr.scoring.limits import DEFAULT_LIMITS as LIMITS

    if len(problem.nodes) > LIMITS.max_inline_nodes:
        return False
    total = 0
    for node in problem.nodes:
        texts = (*node.expressions, *(node.derived or ()))
        sizes = [len(text.encode("utf-8", "surrogatepass")) for text in texts]
        total += sum(sizes)
        if len(texts) > LIMITS.max_expressions_per_node:
            return False
        if max(sizes) > LIMITS.max_expression_bytes:
            return False
    return total <= LIMITS.max_inline_bytes


def _is_utf8(value: object) -> bool:
    """Say whether no string of a row holds a lone surrogate, which Parquet cannot store."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return False
        return True
    if isinstance(value, dict):
        return all(map(_is_utf8, value)) and all(map(_is_utf8, value.values()))
    return not isinstance(value, list) or all(map(_is_utf8, value))


def _judged(
    spool: IO[bytes], census: TextCensus, report: ExportReport
) -> Iterator[tuple[Side, Row]]:
    """Yield the rows that are to be written, in the order in which they were read."""
    spool.seek(0)
    while True:
        try:
            side, digest, problem_id, data_source, num_nodes, row = pickle.load(spool)
        except EOFError:
            return
        fault = census.judge(digest, side)
        if fault is None:
            report.write(side, data_source, num_nodes)
            yield side, row
        else:
            report.leave_out(fault, problem_id)


def _write(rows: Iterator[tuple[Side, Row]], layout: Layout, report: ExportReport) -> None:
    """Write the files; all of them appear, or none."""
    schema = layout.schema()
    out: dict[Side, ParquetFile] = {}
    with ExitStack() as stack:
        for side, path in report.files.items():
            out[side] = ParquetFile(stack.enter_context(atomic_file(path)), schema)
            stack.callback(out[side].close)
        for side, row in rows:
            out[side].write(layout.finished(row, out[side].rows))
    report.nbytes = {side: file.nbytes for side, file in out.items()}


def _files(
    export: Export, layout: Layout, census: TextCensus, report: ExportReport
) -> dict[Side, Path]:
    """Return the path of each file that is to be written; their folders are made.

    Raises:
        InputError: one of them would be empty or replace an input, or a folder cannot be made.
    """
    files = {side: Path(export.output) / name for side, name in layout.files.items()}
    for side in Side:
        if census.rows(side):
            continue
        wanted_so = export.val_fraction == 0 and not export.val_datasets
        if (side is Side.VALIDATION and wanted_so) or (
            not layout.needs_both and census.rows(_OTHER[side])
        ):
            path = files.pop(side)
            if path.exists():
                raise InputError(
                    f"no problem is left for {_NAME[side]}, and {path} is there from before; "
                    "remove it" + (", or give --val-fraction" if layout.needs_both else "")
                )
            continue
        left_out = report.left_out_sentence()
        raise InputError(
            f"no problem of {export.dataset} is left for {_NAME[side]}"
            + (f"; {left_out}" if left_out else f", of {report.read.rows:,} read")
        )
    check_outputs(files.values(), [export.dataset, *export.val_datasets], makes_folders=True)
    for path in files.values():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{path.parent}: cannot be made: {error.strerror}") from None
    return files


_OTHER = {Side.TRAIN: Side.VALIDATION, Side.VALIDATION: Side.TRAIN}
