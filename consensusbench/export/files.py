"""Columns of keys that nobody declared: which type fits all values, found while they pass."""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Protocol

from consensusbench.outputs import check_outputs
from consensusbench.problems.texts import digest, text_key
from consensuspr.data import OnError, Problem, ReadReport, Row, atomic_file, read_problems
from consensuspr.data.readers import JSON_MARK
from consensuspr.data.writers import dump_json
from consensuspr.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa


_EXACT_IN_A_DOUBLE = range(-(1 << 53), (1 << 53) + 1)
_INT64 = range(-(1 << 63), 1 << 63)


class Kinds:
    """Takes note of the values of several keys, then gives each key one type.

    Text, truth values, whole numbers and numbers have a type of their own; whatever mixes
    them, and objects and lists, becomes JSON text.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, set[str]] = {}

    def note(self, values: dict[str, Any]) -> None:
        """Take note of some keys and their values."""
        for key, value in values.items():
            kinds = self._kinds.setdefault(key, set())
            if value is not None:
                kinds.add(_kind(value))

    def fields(self) -> list[pa.Field]:
        """Return a field for each key, in order of first appearance."""
        import pyarrow as pa

        return [
            pa.field(key, pa.type_for_alias(kind))
            if (kind := self._settled(key)) != "json"
            else pa.field(key, pa.string(), metadata=JSON_MARK)
            for key in self._kinds
        ]

    def settled(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the values as their types have them."""
        return {
            key: dump_json(value) if value is not None and self._settled(key) == "json" else value
            for key, value in values.items()
        }

    def _settled(self, key: str) -> str:
        kinds = self._kinds[key]
        if not kinds:
            return "string"
        if kinds <= {"int64", "long"}:
            return "int64"
        if len(kinds) == 1:
            return next(iter(kinds))
        return "double" if kinds == {"int64", "double"} else "json"


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        if value in _EXACT_IN_A_DOUBLE:
            return "int64"
        return "long" if value in _INT64 else "json"
    if isinstance(value, float):
        return "double"
    return "string" if isinstance(value, str) else "json"


# MERGED Rows of a known schema written as one Parquet file, a row group at a time.

# Rows are held until a row group is full: 2,048 rows, or some 16 MB where they are long.
GROUP_ROWS = 2048
GROUP_CHARS = 16 << 20


class ParquetFile:
    """Takes rows one by one.

    Args:
        stream: where to.
        schema: of the rows; a key that a row lacks is null.

    Attributes:
        rows: how many there are.
        nbytes: bytes of all rows in Arrow's memory layout, of those written so far.
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


# MERGED Which problems are exported, and on which side: training or validation.
#
# A problem's ``split`` decides (``test`` is validation), else a share of the problem ids that
# depends on nothing but the id and a seed, so that a dataset may grow, shrink or be reordered
# and no problem changes sides.
#
# What must not be in the files is found by text (:mod:`consensusbench.problems.texts`), because public
# math sets hold the same problem under many ids: a repetition, a training problem whose text is
# also in validation, a text that comes with two ground truths.  Near-copies are not looked for.

_HASHES = 1 << 64


class Side(StrEnum):
    """Where a problem goes."""

    TRAIN = "train"
    VALIDATION = "val"


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
class SidePolicy:
    """Puts problems on a side.

    Args:
        val_fraction: share of the problems without a split that goes to validation, [0, 1).
        seed: another seed, another share.

    Raises:
        InputError: the fraction is outside [0, 1).
    """

    val_fraction: float
    seed: int

    def __post_init__(self) -> None:
        if not 0 <= self.val_fraction < 1:
            raise InputError(
                f"the validation fraction must be at least 0 and below 1, got {self.val_fraction}"
            )

    def side_of(self, problem: Problem) -> Side:
        """Return the side of a problem; the same for the same id, seed and fraction."""
        if problem.split is not None:
            return Side.VALIDATION if problem.split == "test" else Side.TRAIN
        key = f"{self.seed}:{problem.problem_id}".encode("utf-8", "surrogatepass")
        place = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest())
        return Side.VALIDATION if place < self.val_fraction * _HASHES else Side.TRAIN


def text_digest(text: str) -> bytes:
    """Return 16 bytes that are equal for texts that are the same problem."""
    return digest(text_key(text))


@dataclass(slots=True)
class _Text:
    """What is known of one text."""

    ground_truth: bytes
    in_validation: bool = False
    conflicting: bool = False
    written: bool = False


class TextCensus:
    """Knows every text of an export; about 300 bytes a text.

    All problems are counted first (:meth:`count`), then each is judged (:meth:`judge`): whether
    a text is also in validation, or comes with another answer, is known only at the end.
    """

    def __init__(self) -> None:
        self._texts: dict[bytes, _Text] = {}

    def count(self, text: bytes, ground_truth: str, side: Side) -> None:
        """Take note of a problem that could be exported, by the digest of its text."""
        truth = digest(" ".join(ground_truth.split()))
        known = self._texts.setdefault(text, _Text(truth))
        known.conflicting |= known.ground_truth != truth
        known.in_validation |= side is Side.VALIDATION

    def rows(self, side: Side) -> int:
        """Return how many problems of a side will be written, once all have been counted."""
        in_validation = side is Side.VALIDATION
        return sum(
            text.in_validation is in_validation and not text.conflicting
            for text in self._texts.values()
        )

    def judge(self, text: bytes, side: Side) -> LeftOut | None:
        """Return why a counted problem must be left out; None where it is to be written."""
        known = self._texts[text]
        if known.conflicting:
            return LeftOut.CONFLICTING
        if side is Side.TRAIN and known.in_validation:
            return LeftOut.HELD_OUT
        if known.written:
            return LeftOut.REPEATED
        known.written = True
        return None


# MERGED What became of the problems of an export, in numbers and in sentences.

# Trainers group validation metrics by data source, which must therefore have a name.
UNNAMED_SOURCE = "consensusbench"


@dataclass(slots=True)
class ExportReport:
    """Counts of one export.

    Attributes:
        read: rows read and bad rows skipped, over all input files.
        without_split: problems that do not say their side, validation datasets apart.
        written: rows by side and data source.
        left_out: problems that were not written, by reason.
        examples: the first problem id of each reason.
        nodes: nodes of the written rows, by side and data source.
        files: what was written, by side.
        nbytes: bytes of the rows in Arrow's memory layout, by side.
    """

    read: ReadReport = field(default_factory=ReadReport)
    without_split: int = 0
    written: dict[Side, Counter[str]] = field(
        default_factory=lambda: {side: Counter() for side in Side}
    )
    nodes: dict[Side, Counter[str]] = field(
        default_factory=lambda: {side: Counter() for side in Side}
    )
    left_out: Counter[LeftOut] = field(default_factory=Counter)
    examples: dict[LeftOut, str] = field(default_factory=dict)
    files: dict[Side, Path] = field(default_factory=dict)
    nbytes: dict[Side, int] = field(default_factory=dict)

    def rows(self, side: Side) -> int:
        """Return how many rows a side has."""
        return self.written[side].total()

    def write(self, side: Side, data_source: str, num_nodes: int) -> None:
        """Count a problem that is written."""
        name = data_source or UNNAMED_SOURCE
        self.written[side][name] += 1
        self.nodes[side][name] += num_nodes

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
            parts.append(f"{self.read.skipped:,} bad rows (first: {self.read.reasons[0]})")
        return f"left out: {'; '.join(parts)}" if parts else None

    def split_sentence(self) -> str | None:
        """Return one sentence on problems whose side was not given; None where all say it."""
        if not self.without_split:
            return None
        return (
            f"{self.without_split:,} problems have no split and count as training problems but "
            "for the --val-fraction: give a test set with --val-dataset"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the counts as plain values."""
        return {
            "rows": {side.value: self.rows(side) for side in Side},
            "by_data_source": {side.value: dict(self.written[side]) for side in Side},
            "left_out": {reason.name.lower(): count for reason, count in self.left_out.items()},
            "without_split": self.without_split,
            "skipped_rows": self.read.skipped,
            "files": {side.value: str(path) for side, path in self.files.items()},
        }


# MERGED How the problems of a dataset were made, summed up from what their rows say.
#
# ``consensusbench build`` writes into each row's ``metadata.construction`` what its nodes were
# made from and with: versions, models, thresholds, prompts' digests.  Rows of several builds may
# be in one dataset.  A dataset made in another way has no such record, and the card says so.

# Of builds, of ways to sample and of models; further ones are counted only.
MAX_DISTINCT = 64


class Making:
    """Counts builds and models over the problems of a dataset.

    Attributes:
        problems: problems looked at.
        recorded: those that say how they were made.
        models: rollouts by the model that wrote them.
        builds: settings of each distinct build as flat text, with its problems.
        sampling: settings of each distinct way to sample, with its rollouts.
    """

    def __init__(self) -> None:
        self.problems = 0
        self.recorded = 0
        self.models: Counter[str] = Counter()
        self.builds: Counter[tuple[tuple[str, str], ...]] = Counter()
        self.sampling: Counter[tuple[tuple[str, str], ...]] = Counter()

    def note(self, metadata: Row) -> None:
        """Take note of one problem."""
        self.problems += 1
        made = metadata.get("construction")
        if not isinstance(made, dict):
            return
        self.recorded += 1
        provenance = made.get("provenance", made)
        _count(self.builds, tuple(_flat("", provenance)))
        rollouts = made.get("rollouts")
        for rollout in rollouts if isinstance(rollouts, list) else ():
            if isinstance(rollout, dict):
                _count(self.models, str(rollout.get("model") or "unknown"))
                if rollout.get("sampling"):
                    _count(self.sampling, tuple(_flat("", rollout["sampling"])))


def _count(counter: Counter[Any], what: Any) -> None:
    """Count without growing beyond bounds."""
    if what in counter or len(counter) < MAX_DISTINCT:
        counter[what] += 1


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the leaves of an object as ``a.b`` and text."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _flat(f"{name}.{key}" if name else str(key), item)
    else:
        yield name or "value", value if isinstance(value, str) else dump_json(value)


# MERGED A dataset exported, whatever the format: read, selected, written.
#
# A format is a :class:`Layout`: where the rows of each side go, their columns, and how a problem
# becomes one.  All else is here: what is left out and why, rows that wait on disk until all have
# been seen, files that appear when all are complete.  Memory is bounded by a row group and by
# what is remembered of each text (:class:`~consensusbench.export.files.TextCensus`).

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
