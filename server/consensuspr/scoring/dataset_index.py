"""The dataset index: problems by id, their matchers compiled when first needed.

An index is immutable and safe to share between threads.  It is an Arrow IPC file, mapped into
memory: a server loads a dataset once and saves the index, which each worker maps.  A prepared
dataset is such a file.

**Columns**, rows sorted by the bytes of ``problem_id``:

- ``problem_id``, ``data_source``: UTF-8
- ``scoring``: all that decides a score, and what the digest is taken over, as compact JSON:
  ``[problem_id, ground_truth, [[node_id, [expression, …], [derived, …], is_final, weight,
  position, [place of a rare expression, …] if any], …], budget, given]``.  ``given`` is the
  problem's text, null if it states no equation: these reach no node.  The budget is
  ``[statements, numbers, length, equations]``, 0 for a length or equations that are not stored; a
  missing budget, weight or position is null.
- ``display``: ``[[label, type, support], …]``, for people

The schema's metadata has the digest, the versions that it depends on and counts.
"""

from __future__ import annotations

import bisect
import hashlib
import json
import logging
import mmap
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import IO, Any, Literal, TypeAlias, get_args

import pyarrow as pa
import pyarrow.ipc

from consensuspr.core import EXPANSION_VERSION, NORMAL_FORM_VERSION, Matcher, states_equation
from consensuspr.data import (
    Node,
    OnError,
    Problem,
    ReadReport,
    atomic_file,
    open_writer,
    read_problem_rows,
)
from consensuspr.data.readers import ARROW_MAGIC, PREPARED_SUFFIX
from consensuspr.data.writers import on_disk
from consensuspr.errors import DataError, InputError
from consensuspr.scoring.derive import (
    FORMS_VERSION,
    DeriveReport,
    derive_missing,
    provenance_of,
)
from consensuspr.scoring.guard import GuardBudget
from consensuspr.scoring.matchers import MatcherCache
from consensuspr.scoring.types import AnswerRule

DIGEST_VERSION = 3
# Entries kept ready, some 2 MB; a step of a large training run has fewer problems.
RECENT_ENTRIES = 8192
# Of a record batch of the file: so much is held in memory while an index is made.
_BATCH_ROWS = 512
_BATCH_BYTES = 4 << 20
_HELD = "a dataset while it is loaded"

Derive: TypeAlias = Literal["missing", "stored", "off"]

_COLUMNS = ("problem_id", "data_source", "scoring", "display")
_SCHEMA = pa.schema([(name, pa.large_binary()) for name in _COLUMNS])
_METADATA, _CHECKSUM = b"consensuspr", b"consensuspr.sha256"

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

_log = logging.getLogger(__name__)


class Entry:
    """One problem of an index, made by :meth:`DatasetIndex.entry`."""

    # Not the index, which remembers entries: in a cycle it would outlive its last user.
    __slots__ = (
        "_cache", "_display", "_key", "_scoring", "budget", "data_source", "ground_truth",
        "num_nodes", "problem_id",
    )  # fmt: skip

    def __init__(self, index: DatasetIndex, problem_id: str, position: int) -> None:
        """Read a row of the index."""
        _, source, self._scoring, self._display = (column[position] for column in index.columns)
        self._key = (index.digest, position)
        self._cache = index.cache
        _, truth, nodes, budget, _ = json.loads(self._scoring.as_py())
        self.problem_id = problem_id
        self.ground_truth: str | None = truth
        self.data_source: str = _text(source)
        self.num_nodes = len(nodes)
        self.budget: GuardBudget | None = None if budget is None else GuardBudget(*budget)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes in order, with the derived forms in use and without unknown keys."""
        scoring = json.loads(self._scoring.as_py())[2]
        display = json.loads(self._display.as_py())
        return tuple(
            Node(
                node_id,
                tuple(written),
                label,
                kind,
                tuple(derived),
                support,
                is_final,
                weight,
                position,
                tuple(written[at] for at in (rare[0] if rare else ())),
            )
            for (node_id, written, derived, is_final, weight, position, *rare), (
                label,
                kind,
                support,
            ) in zip(scoring, display, strict=True)
        )

    @property
    def matcher(self) -> Matcher:
        """The matcher of the nodes, from the cache or compiled now (up to a millisecond)."""

        def compile_matcher() -> Matcher:
            _, _, nodes, _, given = json.loads(self._scoring.as_py())
            return Matcher(
                [node[1] for node in nodes],
                derived=[node[2] for node in nodes],
                given=given or "",
                rare=[node[1][at] for node in nodes for rare in node[6:] for at in rare],
            )

        return self._cache.get(self._key, compile_matcher)


class DatasetIndex:
    """A dataset ready for scoring; made by :meth:`load` or :meth:`open`."""

    def __init__(self, table: pa.Table, name: str, cache: MatcherCache | None = None) -> None:
        """Wrap a table; use :meth:`load` or :meth:`open` instead."""
        about = json.loads(table.schema.metadata[_METADATA])
        rule = about["answer_rule"]
        self.name = name  # in requests
        self.digest: str = about["digest"]  # ``sha256:…`` over all that decides a score
        self.answer_rule = None if rule is None else AnswerRule(rule)
        self.derive: Derive = about["derive"]  # which derived forms are in use
        names = IndexInfo.__dataclass_fields__
        self.info = IndexInfo(**{name: about["counts"].get(name, 0) for name in names})
        self.cache = MatcherCache() if cache is None else cache
        self.columns = table.columns
        self._table = table
        # Dict operations are atomic: two threads at worst make the same entry twice.
        self._recent: dict[str, Entry] = {}

    def __repr__(self) -> str:
        size = f"{self.info.num_problems:,} problems, {self.info.num_nodes:,} nodes"
        return f"DatasetIndex({self.name!r}, {size}, {self.digest[:19]}…)"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the table alone; matchers are compiled again."""
        return DatasetIndex, (self._table, self.name)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        name: str = "default",
        derive: Derive = "missing",
        on_error: OnError = "stop",
        cache: MatcherCache | None = None,
        processes: int | None = None,
    ) -> DatasetIndex:
        """Read a dataset file, or map one that is prepared.

        Args:
            path: JSONL, gzip'd JSONL or Parquet; or an index made with the same ``derive``.
            name: what requests call the dataset.
            derive: ``"missing"`` derives equal forms for nodes that have none stored, ``"stored"``
                uses what the file has, ``"off"`` matches expressions as written only.  The digest
                differs wherever they differ.
            on_error: ``"stop"`` raises at the first bad row, ``"skip"`` counts it.
            cache: matchers, if several indexes share one cache.
            processes: child processes for deriving at most; None for as many as cores.

        Raises:
            DataError: the file or a row of it is bad; an index is damaged, or made for other
                versions or with another ``derive``.
            InputError: derive is none of the three, or the temporary directory has no room.
        """
        if derive not in get_args(Derive):
            raise InputError(f"derive must be 'missing', 'stored' or 'off', got {derive!r}")
        start = time.monotonic()
        file_name, derived = os.fspath(path), DeriveReport()
        if is_index(path):
            index = cls.open(path, name=name, cache=cache)
            if index.derive != derive:
                reason = f"was made with derive={index.derive!r}, but derive={derive!r} is set"
                raise DataError(file_name, None, reason)
        else:
            with on_disk(_HELD), tempfile.TemporaryFile(prefix="consensuspr-") as file:
                _, derived = _build(path, file, derive, on_error, processes)
                index = cls(_mapped(file)[0], name, cache)
        if derived.outdated:
            _log.warning(
                "dataset %s: %d nodes have derived forms of another version than %s, so each load"
                " makes them again; store them: consensuspr derive %s --output FILE",
                name, derived.outdated, FORMS_VERSION, file_name,
            )  # fmt: skip
        _log.info(
            "dataset %s: loaded %d problems, %d nodes, %d expressions and %d derived forms (%d made"
            " now) from %s in %.1f s, digest %s",
            name, index.info.num_problems, index.info.num_nodes, index.info.num_expressions,
            index.info.num_derived, derived.forms, file_name, time.monotonic() - start,
            index.digest,
        )  # fmt: skip
        return index

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        name: str = "default",
        cache: MatcherCache | None = None,
    ) -> DatasetIndex:
        """Map an index that :meth:`save` wrote; processes that do so share its memory.

        Raises:
            DataError: not an index, damaged, or made for other versions.
        """
        return cls(_open(os.fspath(path)), name, cache)

    @classmethod
    def empty(cls, name: str = "default") -> DatasetIndex:
        """Return a dataset without problems, for rollouts that bring nodes and ground truths."""
        return cls(_schema(IndexInfo(), (), None, "missing").empty_table(), name)

    def save(self, path: str | os.PathLike[str], mode: int = 0o666) -> None:
        """Write the index, complete or not at all; a mapped older one stays usable.

        The umask limits ``mode``.

        Raises:
            InputError: the file cannot be written.
        """
        with atomic_file(path, mode) as stream, pa.ipc.new_file(stream, self._table.schema) as out:
            out.write_table(self._table)

    def entry(self, problem_id: str) -> Entry | None:
        """Return the problem with this id, None if the dataset has none."""
        entry = self._recent.get(problem_id)
        if entry is None:
            position = self._find(problem_id)
            if position is None:
                return None
            if len(self._recent) >= RECENT_ENTRIES:
                self._recent.clear()
            entry = self._recent[problem_id] = Entry(self, problem_id, position)
        return entry

    def data_source(self, problem_id: str) -> str | None:
        """Return the data source of a problem, None if the dataset has no such problem."""
        entry = self.entry(problem_id)
        return None if entry is None else entry.data_source

    def ground_truth(self, problem_id: str) -> str | None:
        """Return the ground truth of a problem, None if the dataset has none."""
        entry = self.entry(problem_id)
        return None if entry is None else entry.ground_truth

    def __contains__(self, problem_id: str) -> bool:
        """Return whether the dataset has a problem."""
        return self._find(problem_id) is not None

    def __len__(self) -> int:
        """Return the number of problems."""
        return len(self.columns[0])

    def problem_ids(self) -> list[str]:
        """Return the ids, sorted by their UTF-8 bytes."""
        return [_text(scalar) for scalar in self.columns[0]]

    def _find(self, problem_id: str) -> int | None:
        ids, wanted = self.columns[0], _bytes(problem_id)
        at = bisect.bisect_left(ids, wanted, key=lambda scalar: scalar.as_py())
        return at if at < len(ids) and ids[at].as_py() == wanted else None


def is_index(path: str | os.PathLike[str]) -> bool:
    """Return whether a file begins as an index does; False if it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read(len(ARROW_MAGIC)) == ARROW_MAGIC
    except OSError:
        return False


def derive_dataset(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    again: bool = False,
    on_error: OnError = "stop",
    processes: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[ReadReport, DeriveReport]:
    """Write a dataset again with derived forms in every node; all else stays as it is.

    Args:
        source: dataset in any format that is read.
        target: output; its suffix decides the format.  May be the source, except for ``.index``,
            which is the dataset ready for scoring.
        again: derive anew where forms are stored already.
        on_error: ``"stop"`` raises at the first bad row, ``"skip"`` counts it.
        processes: child processes for deriving at most; None for as many as cores.
        progress: called with the number of problems so far.

    Raises:
        DataError: the dataset is bad.
        InputError: the target cannot be written or would replace the source, or the temporary
            directory has no room.
    """
    if os.fspath(target).lower().endswith(PREPARED_SUFFIX):
        if os.path.exists(source) and os.path.exists(target) and os.path.samefile(source, target):
            raise InputError(f"{os.fspath(target)}: would replace the dataset itself")
        with atomic_file(target) as stream:
            return _build(source, stream, "missing", on_error, processes, again, progress)
    read, derived = ReadReport(), DeriveReport()
    rows = derive_missing(read_problem_rows(source, on_error, read), derived, processes, again)
    with open_writer(target) as out:
        for count, (problem, row) in enumerate(rows, start=1):
            for node, raw in zip(problem.nodes, row.get("nodes") or (), strict=True):
                raw["derived"] = list(node.derived or ())
            provenance = provenance_of(row.get("metadata"))
            if provenance is not None:
                provenance["forms"] = FORMS_VERSION
            out.write(row)
            if progress is not None:
                progress(count)
    return read, derived


@dataclass(slots=True)
class IndexInfo:
    """Counts of a dataset."""

    num_problems: int = 0
    num_nodes: int = 0
    num_expressions: int = 0  # as written
    num_derived: int = 0  # derived forms in use
    num_without_nodes: int = 0  # problems (NO_NODES)
    num_without_ground_truth: int = 0  # problems (NO_GROUND_TRUTH)
    num_weighted: int = 0  # problems that have a weight for each node
    num_positioned: int = 0  # problems that have a position for each node
    num_with_budgets: int = 0  # problems that have a guard budget
    num_skipped: int = 0  # bad rows

    def add(self, problem: Problem) -> None:
        """Count a problem."""
        nodes = problem.nodes
        self.num_problems += 1
        self.num_nodes += len(nodes)
        self.num_expressions += sum(len(node.expressions) for node in nodes)
        self.num_derived += sum(len(node.derived or ()) for node in nodes)
        self.num_without_nodes += not nodes
        self.num_without_ground_truth += problem.ground_truth is None
        self.num_weighted += bool(nodes) and all(node.weight is not None for node in nodes)
        self.num_positioned += bool(nodes) and all(node.position is not None for node in nodes)
        self.num_with_budgets += problem.budget is not None


def _build(
    path: str | os.PathLike[str],
    target: IO[bytes],
    derive: Derive,
    on_error: OnError,
    processes: int | None,
    again: bool = False,
    progress: Callable[[int], None] | None = None,
) -> tuple[ReadReport, DeriveReport]:
    """Write the index of a dataset file; other arguments and errors are those of its callers."""
    read, derived = ReadReport(), DeriveReport()
    rows = read_problem_rows(path, on_error, read)
    if derive == "missing":
        rows = derive_missing(rows, derived, processes, again)
    info = IndexInfo()
    answer_rule: str | None = None
    ids: list[str] = []

    def packed() -> Iterator[tuple[bytes, ...]]:
        nonlocal answer_rule
        for problem, _ in rows:
            if derive == "off":
                for node in problem.nodes:
                    node.derived = ()
            answer_rule = answer_rule or problem.answer_rule
            info.add(problem)
            if progress is not None:
                progress(info.num_problems)
            ids.append(problem.problem_id)
            yield pack(problem)

    # Outside: a file that could not take a write tries it again when it closes.
    with on_disk(_HELD), tempfile.TemporaryFile(prefix="consensuspr-") as unsorted:
        _write(unsorted, _SCHEMA, packed())
        columns = _mapped(unsorted)[0].columns
        # By their letters, which is the order of their UTF-8 bytes.
        order = sorted(range(len(ids)), key=ids.__getitem__)
        info.num_skipped = read.skipped
        schema = _schema(info, (columns[2][at].as_py() for at in order), answer_rule, derive)
        _write(target, schema, (tuple(c[at].as_py() for c in columns) for at in order))
    return read, derived


def _schema(
    info: IndexInfo, scoring: Iterable[bytes], answer_rule: str | None, derive: Derive
) -> pa.Schema:
    """Return the schema of an index, which describes it."""
    about = {
        "digest": _digest(scoring, answer_rule),
        "normal_form_version": NORMAL_FORM_VERSION,
        "expansion_version": EXPANSION_VERSION,
        "answer_rule": answer_rule,
        "derive": derive,
        "counts": asdict(info),
    }
    text = json.dumps(about).encode()
    return _SCHEMA.with_metadata({_METADATA: text, _CHECKSUM: _sha256(text)})


def pack(problem: Problem) -> tuple[bytes, ...]:
    """Return the row of a problem; a node's missing derived forms count as none."""
    nodes = [
        (
            node.node_id, node.expressions, node.derived or (), node.is_final, node.weight,
            node.position,
            # Nodes without rare expressions keep the digest that they had.
            *([_places(node.rare, node.expressions)] if node.rare else ()),
        )
        for node in problem.nodes
    ]  # fmt: skip
    display = [(node.label, node.type, node.support) for node in problem.nodes]
    given = problem.problem if nodes and states_equation(problem.problem) else None
    scoring = (problem.problem_id, problem.ground_truth, nodes, problem.budget, given)
    texts = (problem.problem_id, problem.data_source, _encode(scoring), _encode(display))
    return tuple(map(_bytes, texts))


def _places(rare: Sequence[str], expressions: Sequence[str]) -> list[int]:
    """Return where rare expressions stand, in ascending order, each once."""
    wanted = set(rare)
    places: dict[str, int] = {}
    for place, text in enumerate(expressions):
        if text in wanted:
            places.setdefault(text, place)
    return list(places.values())


def _write(file: Any, schema: pa.Schema, rows: Iterable[tuple[bytes, ...]]) -> None:
    with pa.ipc.new_file(file, schema) as out:
        batch: list[tuple[bytes, ...]] = []
        size = 0
        for row in rows:
            batch.append(row)
            size += sum(map(len, row))
            if len(batch) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                out.write_batch(_batch(batch, schema))
                batch, size = [], 0
        if batch:
            out.write_batch(_batch(batch, schema))
    file.flush()


def _batch(rows: list[tuple[bytes, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array(column, pa.large_binary()) for column in zip(*rows, strict=True)]
    return pa.record_batch(columns, schema=schema)


def _mapped(file: IO[bytes]) -> tuple[pa.Table, mmap.mmap]:
    """Return the table of a file, without reading it, and the mapping."""
    mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return pa.ipc.open_file(pa.py_buffer(mapping)).read_all(), mapping


def _open(path: str) -> pa.Table:
    """Return the table of an index file, having checked all that decides a score."""
    again = f"make it again: consensuspr derive DATASET --output {path}"
    try:
        with open(path, "rb") as file:
            table, mapping = _mapped(file)
        table.validate(full=True)
        metadata = table.schema.metadata or {}
    except (pa.ArrowException, ValueError, OSError) as error:
        raise DataError(path, None, f"is not an index of a dataset, or damaged; {again}") from error
    text = metadata.get(_METADATA, b"")
    if not text or not table.schema.equals(_SCHEMA):
        raise DataError(path, None, "is an Arrow file that is not an index of a dataset")
    if _sha256(text) != metadata.get(_CHECKSUM):
        raise DataError(path, None, f"is damaged: its metadata has changed; {again}")
    about = json.loads(text)
    for subject, key, ours in (
        ("normal form", "normal_form_version", NORMAL_FORM_VERSION),
        ("derived forms", "expansion_version", EXPANSION_VERSION),
    ):
        if about[key] != ours:
            reason = f"was made for {subject} {about[key]}, this version has {ours}; {again}"
            raise DataError(path, None, reason)
    ids, _, scoring, _ = (_values(column) for column in table.columns)
    try:
        digest = _digest(_named(ids, scoring), about["answer_rule"])
    except UnicodeDecodeError:
        digest = ""
    if digest != about["digest"]:
        raise DataError(path, None, f"is damaged: its digest does not match its rows; {again}")
    # What was checked goes back to the page cache, which processes share.
    mapping.madvise(mmap.MADV_DONTNEED)
    return table


def _values(column: pa.ChunkedArray) -> Iterator[bytes]:
    for chunk in column.chunks:
        yield from chunk.to_pylist()


def _named(ids: Iterable[bytes], scoring: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the scoring lines, empty if one is not that of its id."""
    for problem_id, line in zip(ids, scoring, strict=True):
        name = _encode(problem_id.decode("utf-8", "surrogatepass"))
        yield line if line.startswith(_bytes(f"[{name},")) else b""


def _digest(scoring: Iterable[bytes], answer_rule: str | None) -> str:
    """Return ``sha256:…`` over the scoring lines of problems, sorted by their ids' bytes."""
    digest = hashlib.sha256()
    head = ("consensuspr dataset", DIGEST_VERSION, NORMAL_FORM_VERSION, answer_rule)
    digest.update(_encode(head).encode() + b"\n")
    for line in scoring:
        digest.update(line + b"\n")
    return f"sha256:{digest.hexdigest()}"


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(scalar: pa.Scalar) -> str:
    data: bytes = scalar.as_py()
    return data.decode("utf-8", "surrogatepass")
