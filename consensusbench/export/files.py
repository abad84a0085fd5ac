"""The export of a dataset: problems are read, selected and written.

A :class:`Layout` is a format: its files, their columns, and the row of a problem.

A problem's own ``split`` decides its file (``test`` is validation), else a hash of its id and a
seed, so that no problem changes sides when the dataset changes.  Public math sets hold the same
problem under many ids, so texts are compared (:mod:`consensusbench.problems.texts`): repetitions,
training problems that are also in validation and texts with two ground truths are left out.

The dataset is read twice, once for its texts and once for its rows.  Memory is bounded by a row
group and by some 300 bytes a text.
"""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from consensusbench import Tally, check_outputs, quiet_readers
from consensusbench.problems.texts import digest, text_key
from consensuspr.console import count_of
from consensuspr.data import (
    OnError,
    Problem,
    ReadReport,
    Row,
    atomic_file,
    problem_to_row,
    read_problems,
)
from consensuspr.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

DEFAULT_VAL_FRACTION: Final = 0.05
# Trainers group validation metrics by data source, which must therefore have a name.
UNNAMED_SOURCE: Final = "consensusbench"
GROUP_ROWS: Final = 2048
_HASHES: Final = 1 << 64


class ExportSplit(StrEnum):
    """The file of a problem."""

    TRAIN = "train"
    VALIDATION = "val"


_NOUNS = {ExportSplit.TRAIN: "training", ExportSplit.VALIDATION: "validation"}


class LeftOut(StrEnum):
    """Why a problem is in no file; the value is the end of a sentence about several."""

    NO_TEXT = "without text"
    NO_GROUND_TRUTH = "without ground truth"
    NO_NODES = "without nodes"
    INVALID_NODES = "with nodes over the limits for inline nodes"
    NOT_UTF8 = "with characters that UTF-8 cannot hold"
    CONFLICTING = "whose text has two ground truths"
    REPEATED = "whose text is a repetition"
    HELD_OUT = "for training whose text is also in validation"


@dataclass(frozen=True, slots=True)
class Export:
    """What to export.

    Attributes:
        val_datasets: files all of whose problems are validation.
        val_fraction: share of the problems without a split that is validation; None: 0.05, or 0
            with ``val_datasets``.
        inline_nodes: put the nodes into the rows, for a server without the dataset.
        without_nodes: export problems without nodes too.
    """

    dataset: str | os.PathLike[str]
    output: str | os.PathLike[str]
    val_datasets: tuple[str | os.PathLike[str], ...] = ()
    val_fraction: float | None = None
    seed: int = 0
    inline_nodes: bool = False
    without_nodes: bool = False
    on_error: OnError = "stop"


class Layout(ABC):
    """A format; ``note`` takes every problem before ``schema`` and ``row`` are asked for.

    Attributes:
        files: path of each split's file, relative to the output folder.
        needs_both: whether a split without a problem is an error.
    """

    files: Mapping[ExportSplit, str]
    needs_both: bool

    def note(self, problem: Problem) -> None:  # noqa: B027
        """Take note of the columns of a problem."""

    @abstractmethod
    def schema(self) -> pa.Schema:
        """Return the columns."""

    @abstractmethod
    def row(self, problem: Problem, split: ExportSplit, index: int) -> Row:
        """Return the row of a problem at a place of its file."""


def _by_split() -> dict[ExportSplit, Counter[str]]:
    return {split: Counter() for split in ExportSplit}


@dataclass(slots=True)
class ExportReport:
    """Counts of one export: rows and nodes by split and data source, problems left out."""

    read: ReadReport = field(default_factory=ReadReport)
    without_split: int = 0
    written: dict[ExportSplit, Counter[str]] = field(default_factory=_by_split)
    nodes: dict[ExportSplit, Counter[str]] = field(default_factory=_by_split)
    left_out: Tally[LeftOut] = field(default_factory=Tally)
    files: dict[ExportSplit, Path] = field(default_factory=dict)

    def rows(self, split: ExportSplit) -> int:
        """Return how many rows a split has."""
        return self.written[split].total()

    def left_out_sentence(self) -> str | None:
        """Return one sentence on the problems that are not in the files, if any."""
        parts = [
            f"{count:,} {reason.value} (first: {self.left_out.examples[reason][:80]!r})"
            for reason, count in self.left_out.items()
        ]
        if skipped := self.read.skipped:
            parts.append(f"{count_of(skipped, 'bad row')} (first: {self.read.reasons[0]})")
        return f"left out: {'; '.join(parts)}" if parts else None

    def to_json(self) -> Row:
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
    """One text among all problems that could be exported."""

    ground_truth: bytes
    split: ExportSplit
    conflicting: bool = False
    written: bool = False


def write_export(
    export: Export, layout: Layout, progress: Callable[[int], None] = lambda done: None
) -> ExportReport:
    """Write the files of an export; all of them appear, or none.

    Raises:
        DataError: an input cannot be read, or has a bad row and ``on_error`` is ``stop``.
        InputError: the output cannot be written, or a file would hold no row.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    report = ExportReport()
    texts: dict[bytes, _Text] = {}
    for split, problem in _problems(export, report.read):
        report.without_split += problem.split is None
        if (fault := _fault(problem, export)) is not None:
            report.left_out.note(fault, problem.problem_id)
        else:
            layout.note(problem)
            truth = digest(" ".join((problem.ground_truth or "").split()))
            known = texts.setdefault(digest(text_key(problem.problem)), _Text(truth, split))
            known.conflicting |= known.ground_truth != truth
            if split is ExportSplit.VALIDATION:
                known.split = split
        progress(report.read.rows)
    sizes = Counter(text.split for text in texts.values() if not text.conflicting)
    report.files = _files(export, layout, sizes, report)
    schema, groups = layout.schema(), {split: list[Row]() for split in report.files}
    with ExitStack() as stack, quiet_readers():
        out = {}
        for split, path in report.files.items():
            stream = stack.enter_context(atomic_file(path))
            out[split] = stack.enter_context(pq.ParquetWriter(stream, schema, compression="zstd"))

        def write_group(split: ExportSplit) -> None:
            out[split].write_table(pa.Table.from_pylist(groups[split], schema))
            groups[split].clear()

        for split, problem in _problems(export, ReadReport()):
            if _fault(problem, export) is not None:
                continue
            text = texts[digest(text_key(problem.problem))]
            if text.conflicting:
                report.left_out.note(LeftOut.CONFLICTING, problem.problem_id)
            elif text.split is not split:
                report.left_out.note(LeftOut.HELD_OUT, problem.problem_id)
            elif text.written:
                report.left_out.note(LeftOut.REPEATED, problem.problem_id)
            else:
                text.written = True
                groups[split].append(layout.row(problem, split, report.rows(split)))
                source = problem.data_source or UNNAMED_SOURCE
                report.written[split][source] += 1
                report.nodes[split][source] += len(problem.nodes)
                if len(groups[split]) == GROUP_ROWS:
                    write_group(split)
        for split in filter(groups.__getitem__, groups):
            write_group(split)
    return report


def _problems(export: Export, total: ReadReport) -> Iterator[tuple[ExportSplit, Problem]]:
    """Yield every problem with its split."""
    fraction = export.val_fraction
    if fraction is None:
        fraction = 0.0 if export.val_datasets else DEFAULT_VAL_FRACTION
    if not 0 <= fraction < 1:
        raise InputError(f"the validation fraction must be at least 0 and below 1, got {fraction}")
    for path in (export.dataset, *export.val_datasets):
        read = ReadReport()
        for problem in read_problems(path, export.on_error, read):
            total.rows += 1
            if path is export.dataset:
                yield split_of(problem, fraction, export.seed), problem
            else:
                problem.split = "test"
                yield ExportSplit.VALIDATION, problem
        total.skipped += read.skipped
        total.reasons += read.reasons


def split_of(problem: Problem, val_fraction: float, seed: int) -> ExportSplit:
    """Return the split of a problem: the same for the same id, seed and fraction."""
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
    if not problem.nodes and not export.without_nodes:
        return LeftOut.NO_NODES
    if export.inline_nodes and not _within_limits(problem):
        return LeftOut.INVALID_NODES
    try:  # Parquet cannot store a lone surrogate
        json.dumps(problem_to_row(problem), ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return LeftOut.NOT_UTF8
    return None


def _within_limits(problem: Problem) -> bool:
    """Return whether a server would take the nodes with a request."""
    from consensuspr.scoring.types import DEFAULT_LIMITS as LIMITS

    texts = [(*node.expressions, *(node.derived or ())) for node in problem.nodes]
    sizes = [len(text.encode("utf-8", "surrogatepass")) for of in texts for text in of]
    return (
        len(texts) <= LIMITS.max_inline_nodes
        and max(map(len, texts), default=0) <= LIMITS.max_expressions_per_node
        and max(sizes, default=0) <= LIMITS.max_expression_bytes
        and sum(sizes) <= LIMITS.max_inline_bytes
    )


def _files(
    export: Export, layout: Layout, sizes: Counter[ExportSplit], report: ExportReport
) -> dict[ExportSplit, Path]:
    """Return the path of each file that is to be written; their folders are made.

    Raises:
        InputError: one of them would be empty or replace an input, or a folder cannot be made.
    """
    files = {split: Path(export.output) / name for split, name in layout.files.items()}
    no_validation = export.val_fraction == 0 and not export.val_datasets
    for split in ExportSplit:
        if sizes[split]:
            continue
        is_optional = (not layout.needs_both and sizes.total() > 0) or (
            split is ExportSplit.VALIDATION and no_validation
        )
        if not is_optional:
            left_out = report.left_out_sentence()
            hint = ": set --val-fraction or --val-dataset"
            raise InputError(
                f"no problem of {export.dataset} is left for {_NOUNS[split]}"
                + (f"; {left_out}" if left_out else f", of {report.read.rows:,} read")
                + (hint if split is ExportSplit.VALIDATION else "")
            )
        path = files.pop(split)
        if path.exists():
            raise InputError(
                f"no problem is left for {_NOUNS[split]}, but {path} exists from an earlier "
                "export; remove it"
            )
    check_outputs(files.values(), [export.dataset, *export.val_datasets], makes_folders=True)
    for path in files.values():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{path.parent}: cannot be created: {error.strerror}") from None
    return files
