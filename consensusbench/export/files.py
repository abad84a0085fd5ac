"""A dataset exported, whatever the format: read, selected, written.

A format is a :class:`Layout`: where the rows of each split go, their columns, and how a problem
becomes one.  All else is here.

A problem's own ``split`` decides where it goes (``test`` is validation), else a share of the
problem ids that depends on nothing but the id and a seed, so that a dataset may grow, shrink or
be reordered and no problem changes splits.  What must not be in the files is found by text
(:mod:`consensusbench.problems.texts`), because public math sets hold the same problem under many
ids: a repetition, a training problem whose text is also in validation, a text that comes with two
ground truths.  Near-copies are not looked for.

Rows wait on disk until all have been seen; files appear when all are complete.  Memory is bounded
by a row group and by some 300 bytes a text.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from consensusbench.outputs import check_outputs
from consensusbench.problems.texts import digest, text_key
from consensusbench.store import RowSpool
from consensuspr.console import count_of
from consensuspr.data import OnError, Problem, ReadReport, Row, atomic_file, read_problems
from consensuspr.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

DEFAULT_VAL_FRACTION = 0.05
# Trainers group validation metrics by data source, which must therefore have a name.
UNNAMED_SOURCE = "consensusbench"
# Rows are held until a row group is full: 2,048 rows, or some 16 MB where they are long.
GROUP_ROWS = 2048
GROUP_CHARS = 16 << 20
_HASHES = 1 << 64


class ExportSplit(StrEnum):
    """Where a problem goes."""

    TRAIN = "train"
    VALIDATION = "val"

    @property
    def noun(self) -> str:
        """What a sentence calls it."""
        return "training" if self is ExportSplit.TRAIN else "validation"

    @property
    def other(self) -> ExportSplit:
        """The other one."""
        return ExportSplit.VALIDATION if self is ExportSplit.TRAIN else ExportSplit.TRAIN


class LeftOut(StrEnum):
    """Why a problem goes nowhere; the value is the end of a sentence about several."""

    NO_TEXT = "without text"
    NO_GROUND_TRUTH = "without ground truth"
    NO_NODES = "without nodes"
    INVALID_NODES = "with nodes past the limits for inline nodes"
    NOT_UTF8 = "with characters that UTF-8 cannot hold"
    CONFLICTING = "whose text comes with two ground truths"
    REPEATED = "whose text was there before"
    HELD_OUT = "of training whose text is in validation too"


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
    def files(self) -> Mapping[ExportSplit, str]:
        """Path of each split's file, relative to the output folder."""
        ...

    @property
    def needs_both(self) -> bool:
        """Whether a split without a problem is an error."""
        ...

    def row(self, problem: Problem, split: ExportSplit) -> Row:
        """Return the row of a problem with a text and a ground truth."""
        ...

    def schema(self) -> pa.Schema:
        """Return the columns, now that all rows have been made."""
        ...

    def finished(self, row: Row, index: int) -> Row:
        """Return a row as it is written at a place of its file, now that all have been made."""
        ...


@dataclass(slots=True)
class ExportReport:
    """Counts of one export.

    Attributes:
        read: rows read and bad rows skipped, over all input files.
        without_split: problems that do not say their split, validation datasets apart.
        written: rows by split and data source.
        left_out: problems that were not written, by reason.
        examples: the first problem id of each reason.
        nodes: nodes of the written rows, by split and data source.
        files: what was written, by split.
        nbytes: bytes of the rows in Arrow's memory layout, by split.
    """

    read: ReadReport = field(default_factory=ReadReport)
    without_split: int = 0
    written: dict[ExportSplit, Counter[str]] = field(
        default_factory=lambda: {split: Counter() for split in ExportSplit}
    )
    nodes: dict[ExportSplit, Counter[str]] = field(
        default_factory=lambda: {split: Counter() for split in ExportSplit}
    )
    left_out: Counter[LeftOut] = field(default_factory=Counter)
    examples: dict[LeftOut, str] = field(default_factory=dict)
    files: dict[ExportSplit, Path] = field(default_factory=dict)
    nbytes: dict[ExportSplit, int] = field(default_factory=dict)

    def rows(self, split: ExportSplit) -> int:
        """Return how many rows a split has."""
        return self.written[split].total()

    def write(self, split: ExportSplit, data_source: str, num_nodes: int) -> None:
        """Count a problem that is written."""
        name = data_source or UNNAMED_SOURCE
        self.written[split][name] += 1
        self.nodes[split][name] += num_nodes

    def leave_out(self, reason: LeftOut, problem_id: str) -> None:
        """Count a problem that is not written."""
        self.left_out[reason] += 1
        self.examples.setdefault(reason, problem_id)

    def left_out_sentence(self) -> str | None:
        """Return one sentence on what is missing from the files; None where nothing is."""
        parts = [
            f"{count:,} {reason.value} (first: {self.examples[reason][:80]!r})"
            for reason, count in self.left_out.items()
        ]
        if self.read.skipped:
            parts.append(
                f"{count_of(self.read.skipped, 'bad row')} (first: {self.read.reasons[0]})"
            )
        return f"left out: {'; '.join(parts)}" if parts else None

    def split_sentence(self) -> str | None:
        """Return one sentence on problems whose split was not given; None where all say it."""
        if not self.without_split:
            return None
        return (
            f"{self.without_split:,} problems have no split and count as training problems but "
            "for the --val-fraction: give a test set with --val-dataset"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the counts as plain values."""
        return {
            "rows": {split.value: self.rows(split) for split in ExportSplit},
            "by_data_source": {split.value: dict(self.written[split]) for split in ExportSplit},
            "left_out": {reason.name.lower(): count for reason, count in self.left_out.items()},
            "without_split": self.without_split,
            "skipped_rows": self.read.skipped,
            "files": {split.value: str(path) for split, path in self.files.items()},
        }


@dataclass(slots=True)
class _Text:
    """What is known of one text."""

    ground_truth: bytes
    in_validation: bool = False
    conflicting: bool = False
    written: bool = False


class _Texts:
    """Every text of an export: counted first, then judged when all have been."""

    def __init__(self) -> None:
        self._texts: dict[bytes, _Text] = {}

    def count(self, text: bytes, ground_truth: str, split: ExportSplit) -> None:
        """Take note of a problem that could be exported, by the digest of its text."""
        truth = digest(" ".join(ground_truth.split()))
        known = self._texts.setdefault(text, _Text(truth))
        known.conflicting |= known.ground_truth != truth
        known.in_validation |= split is ExportSplit.VALIDATION

    def rows(self, split: ExportSplit) -> int:
        """Return how many problems of a split will be written, once all have been counted."""
        in_validation = split is ExportSplit.VALIDATION
        return sum(
            text.in_validation is in_validation and not text.conflicting
            for text in self._texts.values()
        )

    def judge(self, text: bytes, split: ExportSplit) -> LeftOut | None:
        """Return why a counted problem must be left out; None where it is to be written."""
        known = self._texts[text]
        if known.conflicting:
            return LeftOut.CONFLICTING
        if split is ExportSplit.TRAIN and known.in_validation:
            return LeftOut.HELD_OUT
        if known.written:
            return LeftOut.REPEATED
        known.written = True
        return None


def write_export(
    export: Export, layout: Layout, progress: Callable[[int], None] = lambda done: None
) -> ExportReport:
    """Write the files of an export; tell ``progress`` how many problems are read.

    Raises:
        DataError: an input cannot be read, or has a bad row and ``on_error`` is ``stop``.
        InputError: the output cannot be written, or a file would hold no row.
    """
    report, texts = ExportReport(), _Texts()
    spool: RowSpool[_Spooled] = RowSpool()
    with spool:
        for split, problem in _problems(export, report):
            row = layout.row(problem, split) if (fault := _fault(problem, export)) is None else {}
            if fault is None and not _is_utf8(row):
                fault = LeftOut.NOT_UTF8
            if fault is None:
                assert problem.ground_truth is not None
                text = digest(text_key(problem.problem))
                texts.count(text, problem.ground_truth, split)
                name, nodes = problem.data_source, len(problem.nodes)
                spool.add(_Spooled(split, text, problem.problem_id, name, nodes, row))
            else:
                report.leave_out(fault, problem.problem_id)
            progress(report.read.rows)
        report.files = _files(export, layout, texts, report)
        _write(_judged(spool, texts, report), layout, report)
    return report


@dataclass(frozen=True, slots=True)
class _Spooled:
    """A row that waits for judgement, with what is counted of it."""

    split: ExportSplit
    text: bytes
    problem_id: str
    data_source: str
    num_nodes: int
    row: Row


def _problems(export: Export, report: ExportReport) -> Iterator[tuple[ExportSplit, Problem]]:
    """Yield every problem with its split.

    Raises:
        InputError: the fraction is outside [0, 1).
    """
    fraction = export.val_fraction
    if fraction is None:
        fraction = 0.0 if export.val_datasets else DEFAULT_VAL_FRACTION
    if not 0 <= fraction < 1:
        raise InputError(f"the validation fraction must be at least 0 and below 1, got {fraction}")
    for problem in read_problems(export.dataset, export.on_error, report.read):
        report.without_split += problem.split is None
        yield split_of(problem, fraction, export.seed), problem
    for path in export.val_datasets:
        # Of its own, since a file without one good row is an error.
        read = ReadReport()
        for problem in read_problems(path, export.on_error, read):
            report.read.rows += 1
            yield ExportSplit.VALIDATION, problem
        report.read.skipped += read.skipped
        report.read.reasons += read.reasons


def split_of(problem: Problem, val_fraction: float, seed: int) -> ExportSplit:
    """Return where a problem goes: the same for the same id, seed and fraction."""
    if problem.split is not None:
        return ExportSplit.VALIDATION if problem.split == "test" else ExportSplit.TRAIN
    key = f"{seed}:{problem.problem_id}".encode("utf-8", "surrogatepass")
    place = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest())
    return ExportSplit.VALIDATION if place < val_fraction * _HASHES else ExportSplit.TRAIN


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
    from consensuspr.scoring.types import DEFAULT_LIMITS as LIMITS

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
    spool: RowSpool[_Spooled], texts: _Texts, report: ExportReport
) -> Iterator[tuple[ExportSplit, Row]]:
    """Yield the rows that are to be written, in the order in which they were read."""
    for one in spool:
        fault = texts.judge(one.text, one.split)
        if fault is None:
            report.write(one.split, one.data_source, one.num_nodes)
            yield one.split, one.row
        else:
            report.leave_out(fault, one.problem_id)


def _write(rows: Iterator[tuple[ExportSplit, Row]], layout: Layout, report: ExportReport) -> None:
    """Write the files; all of them appear, or none."""
    schema = layout.schema()
    out: dict[ExportSplit, ParquetFile] = {}
    with ExitStack() as stack:
        for split, path in report.files.items():
            out[split] = ParquetFile(stack.enter_context(atomic_file(path)), schema)
            stack.callback(out[split].close)
        for split, row in rows:
            out[split].write(layout.finished(row, out[split].rows))
    report.nbytes = {split: file.nbytes for split, file in out.items()}


def _files(
    export: Export, layout: Layout, texts: _Texts, report: ExportReport
) -> dict[ExportSplit, Path]:
    """Return the path of each file that is to be written; their folders are made.

    Raises:
        InputError: one of them would be empty or replace an input, or a folder cannot be made.
    """
    files = {split: Path(export.output) / name for split, name in layout.files.items()}
    for split in ExportSplit:
        if texts.rows(split):
            continue
        wanted_so = export.val_fraction == 0 and not export.val_datasets
        if (split is ExportSplit.VALIDATION and wanted_so) or (
            not layout.needs_both and texts.rows(split.other)
        ):
            path = files.pop(split)
            if path.exists():
                raise InputError(
                    f"no problem is left for {split.noun}, and {path} is there from before; "
                    "remove it" + (", or give --val-fraction" if layout.needs_both else "")
                )
            continue
        left_out = report.left_out_sentence()
        raise InputError(
            f"no problem of {export.dataset} is left for {split.noun}"
            + (f"; {left_out}" if left_out else f", of {report.read.rows:,} read")
            + (": give --val-fraction or --val-dataset" if split is ExportSplit.VALIDATION else "")
        )
    check_outputs(files.values(), [export.dataset, *export.val_datasets], makes_folders=True)
    for path in files.values():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{path.parent}: cannot be made: {error.strerror}") from None
    return files


class ParquetFile:
    """Takes rows one by one; a key that a row lacks is null.

    Attributes:
        rows: how many there are.
        nbytes: bytes of those written so far in Arrow's memory layout.
    """

    def __init__(self, stream: BinaryIO, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self._schema = schema
        self._out = pq.ParquetWriter(stream, schema, compression="zstd")
        self._group: list[Row] = []
        self._chars = 0
        self.rows = 0
        self.nbytes = 0

    def write(self, row: Row) -> None:
        """Take a row; it is held until its group is full."""
        self.rows += 1
        self._group.append(row)
        self._chars += _chars(row)
        if len(self._group) >= GROUP_ROWS or self._chars >= GROUP_CHARS:
            self._flush()

    def close(self) -> None:
        """Write what is held, and the file's end."""
        self._flush()
        self._out.close()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._group:
            table = pa.Table.from_pylist(self._group, self._schema)
            self.nbytes += table.nbytes
            self._out.write_table(table)
            self._group, self._chars = [], 0


def _chars(value: Any) -> int:
    """Return the characters of all strings in a row, which make nearly all of its size."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_chars, value.values()))
    if isinstance(value, list):
        return sum(map(_chars, value))
    return 0
