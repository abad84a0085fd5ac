"""A dataset exported for verl: ``train.parquet`` and ``val.parquet`` in one folder.

Both files appear when both are complete.  Memory is bounded by a row group and by what is
remembered of each text (:class:`~consensusbench.export.selection.TextCensus`): rows wait on
disk until all have been seen.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from consensusbench.export.report import ExportReport
from consensusbench.export.selection import LeftOut, Side, SidePolicy, TextCensus, text_digest
from consensusbench.export.verl_files import VerlFile, verl_row
from consensuspr.data import OnError, Problem, ReadReport, Row, atomic_file, read_problems
from consensuspr.errors import InputError

DEFAULT_VAL_FRACTION = 0.05

_NAME = {Side.TRAIN: "training", Side.VALIDATION: "validation"}


@dataclass(frozen=True, slots=True)
class VerlExport:
    """What to export, and how.

    Attributes:
        dataset: file of problems with nodes.
        output: folder of the Parquet files; made where it does not exist.
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


def export_verl(
    export: VerlExport, progress: Callable[[int], None] = lambda done: None
) -> ExportReport:
    """Write the files of an export.

    Args:
        export: what and how.
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
            fault = _spool(spool, census, problem, side, export)
            if fault is not None:
                report.leave_out(fault, problem.problem_id)
            progress(report.read.rows)
        report.files = _files(export, census, report)
        _write(_judged(spool, census, report), export, report.files)
    return report


def _problems(export: VerlExport, report: ExportReport) -> Iterator[tuple[Side, Problem]]:
    """Yield every problem with its side."""
    fraction = export.val_fraction
    if fraction is None:
        fraction = 0.0 if export.val_datasets else DEFAULT_VAL_FRACTION
    policy = SidePolicy(fraction, export.seed)
    for problem in read_problems(export.dataset, export.on_error, report.read):
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
    spool: IO[bytes], census: TextCensus, problem: Problem, side: Side, export: VerlExport
) -> LeftOut | None:
    """Put the row of a problem on disk, or return why it cannot be exported."""
    fault = _fault(problem, export)
    if fault is not None:
        return fault
    row = verl_row(problem, side, export.inline_nodes)
    if not _is_utf8(row):
        return LeftOut.NOT_UTF8
    digest = text_digest(problem.problem)
    assert problem.ground_truth is not None
    census.count(digest, problem.ground_truth, side)
    # Pickle is quick, and nobody else sees this file.
    pickle.dump((side, digest, row), spool, protocol=pickle.HIGHEST_PROTOCOL)
    return None


def _fault(problem: Problem, export: VerlExport) -> LeftOut | None:
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
        return all(map(_is_utf8, value.values()))
    return not isinstance(value, list) or all(map(_is_utf8, value))


def _judged(
    spool: IO[bytes], census: TextCensus, report: ExportReport
) -> Iterator[tuple[Side, Row]]:
    """Yield the rows that are to be written, in the order in which they were read."""
    spool.seek(0)
    while True:
        try:
            side, digest, row = pickle.load(spool)
        except EOFError:
            return
        fault = census.judge(digest, side)
        if fault is None:
            report.written[side][row["data_source"]] += 1
            yield side, row
        else:
            report.leave_out(fault, row["extra_info"]["problem_id"])


def _write(rows: Iterator[tuple[Side, Row]], export: VerlExport, files: dict[Side, Path]) -> None:
    """Write the files; all of them appear, or none."""
    with ExitStack() as stack:
        out = {}
        for side, path in files.items():
            out[side] = VerlFile(stack.enter_context(atomic_file(path)), export.inline_nodes)
            stack.callback(out[side].close)
        for side, row in rows:
            out[side].write(row)


def _files(export: VerlExport, census: TextCensus, report: ExportReport) -> dict[Side, Path]:
    """Return the path of each file that is to be written.

    Raises:
        InputError: one of them would be empty, or the folder cannot be made.
    """
    folder = Path(export.output)
    files = {side: folder / f"{side.value}.parquet" for side in Side}
    for side in Side:
        if census.rows(side):
            continue
        if side is Side.VALIDATION and export.val_fraction == 0 and not export.val_datasets:
            path = files.pop(side)
            if path.exists():
                raise InputError(
                    f"no problem is left for validation, and {path} is there from before; "
                    "remove it, or give --val-fraction"
                )
            continue
        left_out = report.left_out_sentence()
        raise InputError(
            f"no problem of {export.dataset} is left for {_NAME[side]}"
            + (f"; {left_out}" if left_out else f", of {report.read.rows:,} read")
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made: {error.strerror}") from None
    return files
