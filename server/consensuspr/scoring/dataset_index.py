"""The dataset index: problems by id, their matchers compiled when first needed.

Immutable once made, and safe to share between threads.  Its memory is that of one packed record
a problem, in one block of bytes (:class:`IndexImage`), and of a bounded cache of matchers
(:class:`MatcherCache`).  A process that serves a dataset with several workers loads it once, saves
a snapshot, and lets each worker open that: they share its pages.  A dataset that is prepared ahead
is such a snapshot, in a file of its own.  What deriving costs, what the digest covers and what is
refused is described in ``docs/datasets.md``.

**A record** is three lines of compact JSON (which never holds a raw line break):

1. ``[ground_truth, data_source, num_nodes, budget]``, read at every look-up;
2. ``[problem_id, ground_truth, [[node_id, [expression, …], [derived, …], is_final, weight], …],
   budget]``, the scoring line: all that decides a score, and what the digest is taken over; the
   budget is ``[statements, numbers, length]``, without the length if that is not known; a missing
   budget or weight is null;
3. ``[[label, type, support], …]``, for people.

JSON because its C encoder and decoder pack a problem in some 10 µs, and because such arrays leave
no freedom (no key order, one way to write a number): equal content gives equal bytes.

**The block** is the same whether it was built in memory or is mapped from a file::

    0    "CPRINDEX"                      8 bytes
    8    layout version, header length   2 × u32, little-endian like all that follows
    16   header                          JSON, padded with spaces to a multiple of 8
         start of each id, and one end   (n + 1) × u64
         start of each record, one end   (n + 1) × u64
         ids                             UTF-8, sorted as bytes
         records                         in the same order
         SHA-256 of all before           32 bytes

Nothing is turned into Python objects before it is asked for, so that a problem costs
its record, its id and 16 bytes, and processes that map one snapshot share its pages.
Building takes little memory too, in one pass over the rows: what is beyond a bound lies in a
nameless temporary file and is mapped from there, so that the system may take the pages back.

Look-up is a binary search: some 5 µs among 5,577 ids and twice that among a million, once
for each distinct problem of a batch.  A hash table would win little of that and its order
would have to be part of the file format.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import mmap
import os
import struct
import sys
import tempfile
import threading
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any, BinaryIO, Literal, TypeAlias

from consensuspr.core import EXPANSION_VERSION, NORMAL_FORM_VERSION, Matcher, normalize
from consensuspr.data import (
    Node,
    OnError,
    Problem,
    ReadReport,
    atomic_file,
    read_problem_rows,
)
from consensuspr.data.readers import PREPARED_MAGIC, PREPARED_SUFFIX
from consensuspr.data.writers import discard, on_disk
from consensuspr.errors import DataError, InputError
from consensuspr.scoring.derive import (
    FORMS_VERSION,
    DeriveReport,
    derive_missing,
    forget_derived,
    forget_outdated,
)
from consensuspr.scoring.guard import GuardBudget
from consensuspr.scoring.types import AnswerRule

LAYOUT_VERSION = 5
DIGEST_VERSION = 2

# Records of more bytes than this are put together on disk: those of 5,577 problems take less
# than 10 MB, those of a million more than 1 GB.
MAX_MEMORY_BYTES = 64 << 20
# Bounds of a cache of matchers.
DEFAULT_MAX_BYTES = 256 << 20
DEFAULT_MAX_ENTRIES = 65_536
# Entries kept ready, some 2 MB; a step of a large training run has fewer problems.
RECENT_ENTRIES = 8192
# Between two log lines of a long load: no benchmark of some thousand problems takes as long.
PROGRESS_S = 10.0
PROGRESS_EVERY = 256  # problems, after which the clock is looked at

Derive: TypeAlias = Literal["missing", "stored", "off"]
Buffer: TypeAlias = bytes | mmap.mmap

_PREFIX = struct.Struct("<8sII")
_BOUNDS = struct.Struct("<QQ")
_CHECKSUM_BYTES = 32
_PIECE_BYTES = 1 << 20
# What an entry of a cache costs beside its matcher: key, slots of the dict, the Python object.
_ENTRY_BYTES = 512
# What a matcher takes off the ends of an expression; nothing left means no pattern.
_SET_ASIDE = " .,;:?"
_HELD = "a large dataset while it is loaded"

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
# A JSON string of all but quotes, backslashes and control characters as they are.
_string = json.encoder.encode_basestring

_log = logging.getLogger(__name__)


class Entry:
    """One problem of an index; cheap to make, reads its parts when they are asked for."""

    # Not the index, which remembers entries: in a cycle it would outlive its last user.
    __slots__ = (
        "_cache", "_image", "_position", "budget", "data_source", "ground_truth", "num_nodes",
        "problem_id",
    )  # fmt: skip

    def __init__(self, index: DatasetIndex, problem_id: str, position: int) -> None:
        """Made by :meth:`DatasetIndex.entry`."""
        self.problem_id = problem_id
        self.ground_truth: str | None
        self.data_source: str
        self.num_nodes: int
        self.budget: GuardBudget | None
        self.ground_truth, self.data_source, self.num_nodes, self.budget = read_head(
            index.image.record(position)
        )
        self._image = index.image
        self._cache = index.cache
        self._position = position

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes in order, with the derived forms in use and without unknown keys."""
        return read_nodes(self._image.record(self._position))

    @property
    def matcher(self) -> Matcher:
        """The matcher of the nodes, from the cache or compiled now (up to a millisecond)."""

        def compile_matcher() -> Matcher:
            expressions, derived = read_patterns(self._image.record(self._position))
            return Matcher(expressions, derived=derived)

        return self._cache.get((self._image.digest, self._position), compile_matcher)


class DatasetIndex:
    """A dataset ready for scoring; made by :meth:`load` or :meth:`open`.

    Attributes:
        name: what requests call the dataset.
        digest: ``sha256:…`` over all that decides a score.
        info: counts.
        answer_rule: the rule that the dataset names, None where it names none.
        normal_form_version: version of the normal form that the digest covers.
        cache: the matchers, possibly shared with other indexes.
        image: the packed records.
    """

    def __init__(self, image: IndexImage, name: str, cache: MatcherCache | None = None) -> None:
        """Wrap an image; use :meth:`load` or :meth:`open` instead."""
        header = image.header
        rule = header["answer_rule"]
        self.name = name
        self.image = image
        self.digest = image.digest
        self.normal_form_version: str = header["normal_form_version"]
        self.answer_rule = None if rule is None else AnswerRule(rule)
        self.info = IndexInfo(**header["counts"])
        self.cache = MatcherCache() if cache is None else cache
        # Dict operations are atomic: two threads at worst make the same entry twice.
        self._recent: dict[str, Entry] = {}

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
            path: JSONL, gzip'd JSONL or Parquet; or a snapshot, which has to be made with the
                same ``derive`` (:func:`prepare_dataset`).
            name: what requests call the dataset.
            derive: ``"missing"`` derives equal forms for nodes that have none stored,
                ``"stored"`` uses what the file has, ``"off"`` matches expressions as
                written only.  The digest tells them apart wherever they differ.
            on_error: ``"stop"`` raises at the first bad row, ``"skip"`` counts it.
            cache: matchers, where several indexes share one cache.
            processes: child processes for deriving at most; None for as many as cores.

        Raises:
            DataError: the file or a row of it is bad; a snapshot is damaged, or made for
                another normal form, for other derived forms or with another ``derive``.
            InputError: derive is none of the three, or the temporary directory has no room for
                a large dataset.
        """
        if derive not in ("missing", "stored", "off"):
            raise InputError(f"derive must be 'missing', 'stored' or 'off', got {derive!r}")
        start = time.monotonic()
        if is_image(path):
            index = cls.open(path, name=name, cache=cache)
            made_with = index.image.header["derive"]
            if made_with != derive:
                index.close()
                reason = f"was made with derive {made_with!r}, and {derive!r} is asked for"
                raise DataError(os.fspath(path), None, reason)
            _log.info(
                "dataset %s: %d problems mapped from %s in %.2f s, digest %s",
                name, len(index), os.fspath(path), time.monotonic() - start, index.digest,
            )  # fmt: skip
            return index
        image, _, derived = _build(path, derive, on_error, processes)
        index = cls(image, name, cache)
        if derived.outdated:
            _log.warning(
                "dataset %s: the derived forms of %d nodes were made by another version and are "
                "made anew at each load; store those of %s: consensuspr derive %s --output FILE",
                name, derived.outdated, FORMS_VERSION, os.fspath(path),
            )  # fmt: skip
        if derived.nodes:
            _log.info(
                "dataset %s: derived %d forms for %d nodes without stored ones in %.1f s",
                name, derived.forms, derived.nodes, derived.seconds,
            )  # fmt: skip
        _log.info(
            "dataset %s: %d problems, %d nodes, %d expressions and %d derived forms "
            "from %s in %.1f s, digest %s",
            name, index.info.num_problems, index.info.num_nodes, index.info.num_expressions,
            index.info.num_derived, os.fspath(path), time.monotonic() - start, index.digest,
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
        """Map a snapshot that :meth:`save` wrote; processes that do so share its memory.

        Raises:
            DataError: no snapshot, damaged, or made for another normal form or for other
                derived forms.
        """
        image = map_image(path)
        for what, key, ours in (
            ("normal form", "normal_form_version", NORMAL_FORM_VERSION),
            ("derived forms", "expansion_version", EXPANSION_VERSION),
        ):
            made_for = image.header[key]
            if made_for != ours:
                image.close()
                reason = (
                    f"was made for {what} {made_for}, this is {ours}; make it anew: "
                    f"consensuspr derive DATASET --output {os.fspath(path)}"
                )
                raise DataError(os.fspath(path), None, reason)
        return cls(image, name, cache)

    def save(self, path: str | os.PathLike[str], mode: int = 0o666) -> None:
        """Write a snapshot, complete or not at all; a mapped older one stays usable.

        The umask limits ``mode``.

        Raises:
            InputError: the file cannot be written.
        """
        self.image.save(path, mode)

    def entry(self, problem_id: str) -> Entry | None:
        """Return the problem with this id, None where the dataset has none."""
        entry = self._recent.get(problem_id)
        if entry is None:
            position = self.image.find(problem_id)
            if position is None:
                return None
            if len(self._recent) >= RECENT_ENTRIES:
                self._recent.clear()
            entry = self._recent[problem_id] = Entry(self, problem_id, position)
        return entry

    def data_source(self, problem_id: str) -> str | None:
        """Return the data source of a problem, None where the dataset has no such problem."""
        entry = self.entry(problem_id)
        return None if entry is None else entry.data_source

    def __contains__(self, problem_id: str) -> bool:
        """Say whether the dataset has a problem."""
        return self.image.find(problem_id) is not None

    def __len__(self) -> int:
        """Return the number of problems."""
        return self.image.num_problems

    def problem_ids(self) -> list[str]:
        """Return all ids, sorted by their UTF-8 bytes."""
        return [self.image.problem_id(position) for position in range(len(self))]

    @property
    def nbytes(self) -> int:
        """Bytes of the packed problems; matchers come on top, bounded by the cache."""
        return self.image.nbytes

    def close(self) -> None:
        """Release a mapped snapshot; the index must not be used afterwards."""
        self.image.close()


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counters since the cache was made, and what it holds now."""

    hits: int
    misses: int
    evictions: int
    entries: int
    nbytes: int


class MatcherCache:
    """A thread-safe least-recently-used cache of matchers; datasets of a process may share one.

    A matcher takes up to a millisecond to compile and some ten kilobytes to keep, and a
    training step returns to few problems: the cache follows the working set, so that a million
    problems need no more memory than a thousand.

    Bounds hold for what the cache keeps; a matcher in use outlives its eviction.  A matcher
    larger than the bound is handed out and not kept.
    """

    def __init__(
        self, max_bytes: int = DEFAULT_MAX_BYTES, max_entries: int = DEFAULT_MAX_ENTRIES
    ) -> None:
        """Make an empty cache; a bound of 0 keeps nothing."""
        self.max_bytes = max_bytes
        self.max_entries = max_entries
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, Matcher] = OrderedDict()
        self._nbytes = 0
        self._hits = 0
        self._misses = 0
        self._evictions = 0

    def get(self, key: Hashable, compile_matcher: Callable[[], Matcher]) -> Matcher:
        """Return the matcher of a key, compiling it where it is not kept.

        Compiling happens outside the lock: two threads that miss together compile twice,
        which costs less than all others waiting behind one.
        """
        with self._lock:
            matcher = self._kept.get(key)
            if matcher is not None:
                self._kept.move_to_end(key)
                self._hits += 1
                return matcher
            self._misses += 1
        matcher = compile_matcher()
        with self._lock:
            if key not in self._kept:
                self._keep(key, matcher)
        return matcher

    def stats(self) -> CacheStats:
        """Return the counters as of now."""
        with self._lock:
            return CacheStats(
                self._hits, self._misses, self._evictions, len(self._kept), self._nbytes
            )

    def forget(self, digest: str) -> None:
        """Drop the matchers of a dataset that is served no more."""
        with self._lock:
            gone = [key for key in self._kept if isinstance(key, tuple) and key[0] == digest]
            for key in gone:
                self._nbytes -= self._kept.pop(key).nbytes + _ENTRY_BYTES

    def clear(self) -> None:
        """Drop all matchers."""
        with self._lock:
            self._kept.clear()
            self._nbytes = 0

    def _keep(self, key: Hashable, matcher: Matcher) -> None:
        cost = matcher.nbytes + _ENTRY_BYTES
        if cost > self.max_bytes or self.max_entries < 1:
            return
        self._kept[key] = matcher
        self._nbytes += cost
        while self._nbytes > self.max_bytes or len(self._kept) > self.max_entries:
            _, dropped = self._kept.popitem(last=False)
            self._nbytes -= dropped.nbytes + _ENTRY_BYTES
            self._evictions += 1


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
        processes: as for :func:`consensuspr.scoring.derive.derive_missing`.
        progress: called with the number of problems so far.

    Raises:
        DataError: the dataset is bad.
        InputError: the target is the source or cannot be written, or the temporary directory
            has no room for a large dataset.
    """
    if os.path.exists(source) and os.path.exists(target) and os.path.samefile(source, target):
        raise InputError(f"{os.fspath(target)}: is the dataset itself, which would be lost")
    image, read, derived = _build(
        source, "missing", on_error, processes, again=again, progress=progress
    )
    try:
        image.save(target)
    finally:
        image.close()
    return read, derived


@dataclass(slots=True)
class IndexInfo:
    """Counts of a dataset.

    Attributes:
        num_problems: problems in all.
        num_nodes: their consensus nodes.
        num_expressions: expressions as written.
        num_derived: derived forms in use.
        num_without_nodes: problems without a node (NO_NODES).
        num_without_ground_truth: problems without an answer (NO_GROUND_TRUTH).
        num_empty_expressions: expressions with an empty normal form; they never match.
        num_single_digit_expressions: expressions whose normal form is one digit; they are
            matched by almost any response.
        num_unmatchable_nodes: nodes of which every expression is empty; NCR 1 is out of
            reach for their problems.
        num_weighted: problems that have a weight for each node.
        num_with_budgets: problems that have a guard budget.
        num_skipped: bad rows that were passed over.
    """

    num_problems: int = 0
    num_nodes: int = 0
    num_expressions: int = 0
    num_derived: int = 0
    num_without_nodes: int = 0
    num_without_ground_truth: int = 0
    num_empty_expressions: int = 0
    num_single_digit_expressions: int = 0
    num_unmatchable_nodes: int = 0
    num_weighted: int = 0
    num_with_budgets: int = 0
    num_skipped: int = 0


def _build(
    path: str | os.PathLike[str],
    derive: Derive,
    on_error: OnError,
    processes: int | None,
    *,
    again: bool = False,
    progress: Callable[[int], None] | None = None,
) -> tuple[IndexImage, ReadReport, DeriveReport]:
    """Read a dataset file to the end; arguments and errors are those of its callers."""
    read, derived = ReadReport(), DeriveReport()
    rows = read_problem_rows(path, on_error, read)
    if again:
        rows = forget_derived(rows)
    if derive == "missing":
        rows = derive_missing(forget_outdated(rows, derived), derived, processes)
    with contextlib.closing(_Builder(os.fspath(path), derive)) as builder:
        for count, (problem, _) in enumerate(rows, start=1):
            builder.add(problem)
            if not count % PROGRESS_EVERY:
                builder.tell_progress()
                if progress is not None:
                    progress(count)
        builder.info.num_skipped = read.skipped
        if progress is not None:
            progress(builder.info.num_problems)
        return IndexImage(builder.finish()), read, derived


class _Builder:
    """Packs and counts problems one by one; to be closed."""

    def __init__(self, path: str, derive: Derive) -> None:
        self.info = IndexInfo()
        self._path = path
        self._derive = derive
        self._records = _Records()
        self._answer_rule: str | None = None
        self._example = ""
        self._started = self._spoke = time.monotonic()

    def close(self) -> None:
        self._records.close()

    def add(self, problem: Problem) -> None:
        nodes = problem.nodes
        if self._derive == "off":
            for node in nodes:
                node.derived = ()
        self._answer_rule = self._answer_rule or problem.answer_rule
        self._records.append(problem.problem_id, pack(problem))
        info = self.info
        info.num_problems += 1
        info.num_nodes += len(nodes)
        info.num_without_nodes += not nodes
        info.num_without_ground_truth += problem.ground_truth is None
        info.num_weighted += bool(nodes) and all(node.weight is not None for node in nodes)
        info.num_with_budgets += problem.budget is not None
        for node in nodes:
            info.num_expressions += len(node.expressions)
            info.num_derived += len(node.derived or ())
            for expression in node.expressions:
                if len(normalize(expression).strip(_SET_ASIDE)) < 2:
                    self._weigh(problem, node)
                    break

    def _weigh(self, problem: Problem, node: Node) -> None:
        """Count expressions of a node that can never match, or that match nearly everything."""
        empty = 0
        for expression in node.expressions:
            form = normalize(expression).strip(_SET_ASIDE)
            if not form:
                empty += 1
                self._note(problem, node, expression, "has an empty normal form")
            elif len(form) == 1 and form.isdigit():
                self.info.num_single_digit_expressions += 1
                self._note(problem, node, expression, "is a single digit in normal form")
        self.info.num_empty_expressions += empty
        self.info.num_unmatchable_nodes += empty == len(node.expressions) and not node.derived

    def _note(self, problem: Problem, node: Node, expression: str, what: str) -> None:
        self._example = self._example or (
            f"{expression[:60]!r} of node {node.node_id!r} of problem {problem.problem_id!r} {what}"
        )

    def tell_progress(self) -> None:
        now = time.monotonic()
        if now - self._spoke < PROGRESS_S:
            return
        self._spoke = now
        seconds = now - self._started
        _log.info(
            "%s: %d problems read so far in %.0f s, %.0f a second",
            self._path, self.info.num_problems, seconds, self.info.num_problems / seconds,
        )  # fmt: skip

    def finish(self) -> Buffer:
        """Return the image, having logged how many expressions are worth little."""
        if self._example:
            _log.warning(
                "%s: %d expressions are empty in normal form and never match, %d are a single "
                "digit and match nearly everything, %d nodes can never be matched; first: %s",
                self._path, self.info.num_empty_expressions,
                self.info.num_single_digit_expressions, self.info.num_unmatchable_nodes,
                self._example,
            )  # fmt: skip
        if self._spoke > self._started:
            _log.info(
                "%s: all %d problems read, putting them in order", self._path,
                self.info.num_problems,
            )  # fmt: skip
        self._records.sort()
        header = {
            "digest": _content_digest(self._records.records(), self._answer_rule),
            "normal_form_version": NORMAL_FORM_VERSION,
            "expansion_version": EXPANSION_VERSION,
            "answer_rule": self._answer_rule,
            "derive": self._derive,
            "counts": asdict(self.info),
        }
        return self._records.block(header)


def pack(problem: Problem) -> bytes:
    """Return the record of a problem; a node's missing derived forms count as none."""
    nodes = problem.nodes
    truth = "null" if problem.ground_truth is None else _string(problem.ground_truth)
    budget = "null"
    if problem.budget is not None:
        *counts, length = problem.budget
        budget = "[{},{}{}]".format(*counts, f",{length}" if length else "")
    # Put together by hand: an encoder of JSON would be made anew for each line, and be asked
    # about every value of which kind it is.
    scoring = ",".join(
        [
            f"[{_string(node.node_id)},{_strings(node.expressions)},{_strings(node.derived or ())},"
            f"{'true' if node.is_final else 'false'},"
            f"{'null' if node.weight is None else float.__repr__(node.weight)}]"
            for node in nodes
        ]
    )
    display = ",".join(
        [
            f"[{_string(node.label)},{_string(node.type)},"
            f"{'null' if node.support is None else node.support}]"
            for node in nodes
        ]
    )
    text = (
        f"[{truth},{_string(problem.data_source)},{len(nodes)},{budget}]\n"
        f"[{_string(problem.problem_id)},{truth},[{scoring}],{budget}]\n[{display}]"
    )
    return text.encode("utf-8", "surrogatepass")


def _strings(texts: Iterable[str]) -> str:
    return f"[{','.join(map(_string, texts))}]"


def read_head(record: bytes) -> tuple[str | None, str, int, GuardBudget | None]:
    """Return ground truth, data source, number of nodes and budget, a record's first line."""
    truth, data_source, num_nodes, budget = json.loads(record[: record.index(b"\n")])
    return truth, data_source, num_nodes, None if budget is None else GuardBudget(*budget)


def scoring_line(record: bytes) -> bytes:
    """Return the line of a record that the digest is taken over."""
    return record.split(b"\n", 2)[1]


def read_patterns(record: bytes) -> tuple[list[list[str]], list[list[str]]]:
    """Return for each node its expressions, and for each its derived forms."""
    nodes = json.loads(scoring_line(record))[2]
    return [node[1] for node in nodes], [node[2] for node in nodes]


def read_nodes(record: bytes) -> tuple[Node, ...]:
    """Return the nodes of a record, without their unknown keys."""
    _, scoring, display = record.decode("utf-8", "surrogatepass").split("\n", 2)
    return tuple(
        Node(
            node_id=node_id,
            expressions=tuple(expressions),
            label=label,
            type=kind,
            derived=tuple(derived),
            support=support,
            is_final=is_final,
            weight=weight,
        )
        for (node_id, expressions, derived, is_final, weight), (label, kind, support) in zip(
            json.loads(scoring)[2], json.loads(display), strict=True
        )
    )


def _content_digest(records: Iterable[bytes], answer_rule: str | None) -> str:
    """Return ``sha256:…`` over the scoring lines of records, sorted by their ids' bytes."""
    digest = hashlib.sha256()
    head = ("consensuspr dataset", DIGEST_VERSION, NORMAL_FORM_VERSION, answer_rule)
    digest.update(_encode(head).encode() + b"\n")
    for record in records:
        digest.update(scoring_line(record) + b"\n")
    return f"sha256:{digest.hexdigest()}"


class IndexImage:
    """Read access to the block; safe to share between threads, since nothing changes."""

    def __init__(self, buffer: Buffer) -> None:
        """Take a block of the layout above."""
        _, _, header_bytes = _PREFIX.unpack_from(buffer, 0)
        start = _PREFIX.size
        self.buffer = buffer
        self.header: dict[str, Any] = json.loads(buffer[start : start + header_bytes])
        self.digest: str = self.header["digest"]
        self.num_problems: int = self.header["counts"]["num_problems"]
        self._id_bounds = start + header_bytes
        self._record_bounds = self._id_bounds + 8 * (self.num_problems + 1)
        self._ids = self._record_bounds + 8 * (self.num_problems + 1)
        self._records = self._ids + int(self.header["id_bytes"])

    @property
    def nbytes(self) -> int:
        """Size of the block."""
        return len(self.buffer)

    def find(self, problem_id: str) -> int | None:
        """Return the position of a problem, None where it is unknown."""
        wanted = problem_id.encode("utf-8", "surrogatepass")
        low, high = 0, self.num_problems
        while low < high:
            middle = (low + high) // 2
            found = self._id(middle)
            if found < wanted:
                low = middle + 1
            elif found > wanted:
                high = middle
            else:
                return middle
        return None

    def problem_id(self, position: int) -> str:
        """Return the id at a position in [0, num_problems)."""
        return self._id(position).decode("utf-8", "surrogatepass")

    def record(self, position: int) -> bytes:
        """Return the record at a position in [0, num_problems)."""
        start, end = _BOUNDS.unpack_from(self.buffer, self._record_bounds + 8 * position)
        return self.buffer[self._records + start : self._records + end]

    def save(self, path: str | os.PathLike[str], mode: int = 0o666) -> None:
        """Write the block to a file, which appears complete or not at all."""
        with atomic_file(path, mode) as stream:
            for start in range(0, len(self.buffer), _PIECE_BYTES):
                piece = self.buffer[start : start + _PIECE_BYTES]
                stream.write(piece)
                if isinstance(self.buffer, mmap.mmap):
                    # Back to the page cache, or all of a large dataset would become resident.
                    self.buffer.madvise(mmap.MADV_DONTNEED, start, len(piece))

    def close(self) -> None:
        """Release the mapping, if there is one; the image must not be used afterwards."""
        if isinstance(self.buffer, mmap.mmap):
            self.buffer.close()

    def _id(self, position: int) -> bytes:
        start, end = _BOUNDS.unpack_from(self.buffer, self._id_bounds + 8 * position)
        return self.buffer[self._ids + start : self._ids + end]


def is_image(path: str | os.PathLike[str]) -> bool:
    """Say whether a file begins as a snapshot does; False where it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read(len(PREPARED_MAGIC)) == PREPARED_MAGIC
    except OSError:
        return False


def map_image(path: str | os.PathLike[str]) -> IndexImage:
    """Map a snapshot and verify all of it.

    The check reads the file once (about a second per gigabyte), past the mapping: pages that no
    look-up touches stay out of this process and in the page cache that all processes share.

    Raises:
        DataError: no snapshot, of another layout version, cut short or damaged.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb", buffering=0) as stream:
            _verify(stream, name)
            block = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise DataError(name, None, f"cannot be mapped: {error.strerror}") from error
    return IndexImage(block)


def _verify(stream: BinaryIO, name: str) -> None:
    size = os.fstat(stream.fileno()).st_size
    prefix = stream.read(_PREFIX.size)
    if not prefix.startswith(PREPARED_MAGIC):
        raise DataError(name, None, "is no snapshot of a dataset index")
    if size < _PREFIX.size + _CHECKSUM_BYTES:
        raise DataError(name, None, "is a damaged snapshot: it is cut short")
    version = _PREFIX.unpack(prefix)[1]
    if version != LAYOUT_VERSION:
        reason = f"is a snapshot of layout {version}, layout {LAYOUT_VERSION} is read; make it anew"
        raise DataError(name, None, reason)
    digest = hashlib.sha256(prefix)
    left = size - len(prefix) - _CHECKSUM_BYTES
    while left and (piece := stream.read(min(left, _PIECE_BYTES))):
        digest.update(piece)
        left -= len(piece)
    if digest.digest() != stream.read(_CHECKSUM_BYTES):
        raise DataError(name, None, "is a damaged snapshot: its checksum does not hold")


class _Records:
    """Records as they come, in one growing buffer, which moves to disk where it gets large.

    To be closed.  Not a bytes object for each: a million of them would leave the heap in pieces,
    twice the size of what is kept.  Raises InputError where the temporary directory has no room.
    """

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._bounds = array("Q", [0])
        self._data = tempfile.SpooledTemporaryFile(MAX_MEMORY_BYTES, prefix="consensuspr-")  # noqa: SIM115
        self._order = array("Q")

    def close(self) -> None:
        discard(self._data)

    def append(self, problem_id: str, record: bytes) -> None:
        with on_disk(_HELD):
            self._data.write(record)
        self._ids.append(problem_id)
        self._bounds.append(self._bounds[-1] + len(record))

    def sort(self) -> None:
        """Put the records in order, of their ids' bytes, which is that of their letters."""
        with on_disk(_HELD):
            self._data.flush()
        self._order = array("Q", sorted(range(len(self._ids)), key=self._ids.__getitem__))

    def ids(self) -> Iterator[bytes]:
        for at in self._order:
            yield self._ids[at].encode("utf-8", "surrogatepass")

    def sizes(self) -> Iterator[int]:
        for at in self._order:
            yield self._bounds[at + 1] - self._bounds[at]

    def records(self) -> Iterator[bytes]:
        with on_disk(_HELD):
            for at in self._order:
                self._data.seek(self._bounds[at])
                yield self._data.read(self._bounds[at + 1] - self._bounds[at])

    def block(self, header: dict[str, Any]) -> Buffer:
        """Return the block of the sorted records; the header has ``counts.num_problems`` in it."""
        if self._bounds[-1] <= MAX_MEMORY_BYTES:
            memory = io.BytesIO()
            self._write_block(header, memory)
            return memory.getvalue()
        with on_disk(_HELD), tempfile.TemporaryFile(prefix="consensuspr-") as file:
            self._write_block(header, file)
            file.flush()
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def _write_block(self, header: dict[str, Any], stream: BinaryIO) -> None:
        digest = hashlib.sha256()

        def write(piece: bytes) -> None:
            digest.update(piece)
            stream.write(piece)

        id_bounds, record_bounds = (
            array("Q", accumulate(sizes, initial=0))
            for sizes in (map(len, self.ids()), self.sizes())
        )
        text = json.dumps({"id_bytes": id_bounds[-1], **header}, sort_keys=True).encode()
        text += b" " * (-len(text) % 8)
        write(_PREFIX.pack(PREPARED_MAGIC, LAYOUT_VERSION, len(text)) + text)
        for bounds in (id_bounds, record_bounds):
            if sys.byteorder == "big":
                bounds.byteswap()
            write(bounds.tobytes())
        for problem_id in self.ids():
            write(problem_id)
        for record in self.records():
            write(record)
        stream.write(digest.digest())
