"""What stage 2 made of a problem, as plain values and back: for the journal and for files."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pickle
import shutil
import struct
import tempfile
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol, Self

import numpy as np

from consensusbench.construction.types import Excluded, Group
from consensusbench.extraction.types import Candidate, Dropped, Extraction
from consensusbench.store import Journal, digest
from consensuspr.data import NODE_TYPES, DataError, OnError, Problem, ReadReport, Row, read_problems
from consensuspr.errors import ConsensusPRError, InputError


def extraction_to_row(extraction: Extraction) -> Row:
    """Return candidates and what was dropped, in their order."""
    return {
        "candidates": [
            {
                "label": one.label,
                "type": one.type,
                "expressions": list(one.expressions),
                "derived": list(one.derived),
                "support": one.support,
                "num_models": one.num_models,
                "position": one.position,
                "is_final": one.is_final,
            }
            for one in extraction.candidates
        ],
        "dropped": [dropped_to_row(one) for one in extraction.dropped],
    }


def dropped_to_row(dropped: Dropped) -> Row:
    """Return a conclusion that is no node, and why."""
    return {
        "stage": dropped.stage,
        "reason": dropped.reason,
        "detail": dropped.detail,
        "label": dropped.label,
        "expressions": list(dropped.expressions),
        "support": dropped.support,
    }


def extraction_from_row(row: Row) -> Extraction:
    """Return the extraction that a row describes.

    Raises:
        InputError: the row is not of this shape; the message is one clause.
    """
    return Extraction(
        tuple(_candidate(raw, at) for at, raw in enumerate(_list(row, "candidates"))),
        tuple(_dropped(raw, at) for at, raw in enumerate(_list(row, "dropped"))),
    )


def _candidate(raw: Any, at: int) -> Candidate:
    where = f"candidates[{at}]"
    kind = _value(raw, "type", str, where)
    if kind not in NODE_TYPES:
        raise InputError(f"{where}.type must be one of {', '.join(NODE_TYPES)}, got {kind!r}")
    expressions = _texts(raw, "expressions", where)
    if not expressions:
        raise InputError(f"{where} has no expressions")
    return Candidate(
        label=_value(raw, "label", str, where),
        type=kind,
        expressions=expressions,
        derived=_texts(raw, "derived", where),
        support=_value(raw, "support", int, where),
        num_models=_value(raw, "num_models", int, where),
        position=float(_value(raw, "position", (int, float), where)),
        is_final=_value(raw, "is_final", bool, where),
    )


def _dropped(raw: Any, at: int) -> Dropped:
    where = f"dropped[{at}]"
    stage = _value(raw, "stage", str, where)
    if stage not in ("extract", "refine"):
        raise InputError(f"{where}.stage must be extract or refine, got {stage!r}")
    support = raw.get("support")
    return Dropped(
        stage=stage,
        reason=_value(raw, "reason", str, where),
        detail=_value(raw, "detail", str, where),
        label=_value(raw, "label", str, where),
        expressions=_texts(raw, "expressions", where),
        support=None if support is None else _value(raw, "support", int, where),
    )


def _list(row: Row, key: str) -> list[Any]:
    value = row.get(key)
    if not isinstance(value, list):
        raise InputError(f"{key} must be a list")
    return value


def _value(raw: Any, key: str, kind: type | tuple[type, ...], where: str) -> Any:
    value = raw.get(key) if isinstance(raw, dict) else None
    # A truth value is a whole number to Python, and to nobody else.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise InputError(f"{where}.{key} is missing or of a wrong type")
    return value


def _texts(raw: Any, key: str, where: str) -> tuple[str, ...]:
    value = raw.get(key) if isinstance(raw, dict) else None
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise InputError(f"{where}.{key} must be a list of strings")
    return tuple(value)


# MERGED How rollouts were sampled, from the file that ``consensusbench sample`` writes beside them.
#
# ``ROLLOUTS.provenance.json`` names models, prompt and settings; without their counts they are the
# same for all rows, and go into the dataset.  Rollouts from elsewhere have none.

SUFFIX = ".provenance.json"

# It ends up in every row of a dataset.
MAX_BYTES = 64 << 10


def sampling_records(rollouts: Iterable[Path]) -> list[Row]:
    """Return what lies beside rollouts files, each content once, in an order of its own.

    Raises:
        DataError: a file cannot be read, is too long, or holds no object.
    """
    found: dict[str, Row] = {}
    for path in rollouts:
        beside = Path(f"{path}{SUFFIX}")
        if beside.exists():
            record = _read(beside)
            found[json.dumps(record, sort_keys=True)] = record
    return [record for _, record in sorted(found.items())]


def _read(path: Path) -> Row:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(str(path), None, f"cannot be read: {error.strerror}") from error
    try:
        record: Any = json.loads(content)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise DataError(str(path), None, "holds no JSON object; remove it to build without it")
    # Of the run as a whole, not of the rollouts that a problem was made from.
    record.pop("counts", None)
    size = len(json.dumps(record))
    if size > MAX_BYTES:
        raise DataError(str(path), None, f"holds {size} bytes, the limit is {MAX_BYTES}")
    return record


# MERGED Rollouts in any order, put on disk and given back problem by problem.
#
# The texts go to one nameless file in the folder of the build, one behind the other; what stays
# in memory is some 60 bytes a rollout (where it lies, whose it is, a digest of its text), so that a
# hundred thousand rollouts take 6 MB whatever their length.  A partition by hash was weighed and
# dropped: it bounds memory by the largest partition, gives problems back in the order of hashes,
# and has to read rollouts that are not wanted.

# Lengths of the rollout's name and of what is known of its sampling, which stand before the text.
_HEAD = struct.Struct("<II")
_NO_NAME = 0xFFFFFFFF
_LABELS = {None: -1, False: 0, True: 1}


class Spooled(NamedTuple):
    """A rollout as it lies on disk.

    Attributes:
        name: its id, None where it has none.
        sampling: how it was sampled, as JSON text; empty where unknown.
        response: its text.
    """

    name: str | None
    sampling: str
    response: str


@dataclass(frozen=True, slots=True)
class Stored:
    """A distinct text among the rollouts of a problem.

    Attributes:
        at: number of the rollout in the spool; where a text is repeated, of the one whose
            model and name come first, so that the order of rows does not matter.
        digest: of the text.
        num_bytes: of the text and what stands before it.
        model: who wrote it, empty where unknown.
        label: its label; of a repeated text, False where one is, and None before True.
        repeats: further rollouts with the same text.
    """

    at: int
    digest: bytes
    num_bytes: int
    model: str
    label: bool | None
    repeats: int


class RolloutSpool:
    """Takes rollouts one by one; after :meth:`finish`, gives back those of a problem.

    Args:
        folder: where the file lies; it has no name there and vanishes with the process.
    """

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(prefix="rollouts-", dir=folder)  # noqa: SIM115
        self._end = 0
        self._models: dict[str, int] = {}
        # One element a rollout each.
        self._problem = array("i")
        self._model = array("i")
        self._label = array("b")
        self._offset = array("q")
        self._size = array("i")
        self._digest = bytearray()
        self._order: Any = None
        self._sorted_problem: Any = None
        self._names_of_models: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._problem)

    def add(self, problem: int, model: str, rollout: Spooled, label: bool | None = None) -> None:
        """Take one rollout of a problem.

        Args:
            problem: number of the problem.
            model: who wrote the rollout, empty where unknown.
            rollout: name, sampling and text.
            label: whether its row says that it is correct.

        Raises:
            ConsensusPRError: the disk is full.
        """
        name, sampling, text = ((part or "").encode("utf-8", "surrogatepass") for part in rollout)
        head = _HEAD.pack(_NO_NAME if rollout.name is None else len(name), len(sampling))
        try:
            self._file.write(head + name + sampling + text)
        except OSError as error:
            raise ConsensusPRError(
                f"the rollouts cannot be put on disk beside the output: {error.strerror}"
            ) from error
        size = len(head) + len(name) + len(sampling) + len(text)
        self._problem.append(problem)
        self._model.append(self._models.setdefault(model, len(self._models)))
        self._label.append(_LABELS[label])
        self._offset.append(self._end)
        self._size.append(size)
        self._digest += hashlib.blake2b(text, digest_size=16).digest()
        self._end += size

    def finish(self) -> None:
        """Take no more, and sort what there is by problem and text."""
        self._file.flush()
        self._names_of_models = list(self._models)
        problem = np.frombuffer(self._problem, np.int32)
        digest = np.frombuffer(self._digest, np.dtype(">u8")).reshape(-1, 2)
        self._order = np.lexsort((digest[:, 1], digest[:, 0], problem))
        self._sorted_problem = problem[self._order]

    def of_problem(self, problem: int) -> list[Stored]:
        """Return the distinct texts of a problem, ordered by digest."""
        first, last = np.searchsorted(self._sorted_problem, [problem, problem + 1])
        same: dict[bytes, list[int]] = {}
        for at in self._order[first:last].tolist():
            same.setdefault(bytes(self._digest[16 * at : 16 * at + 16]), []).append(at)
        return [self._stored(digest, rollouts) for digest, rollouts in same.items()]

    def read(self, at: int) -> Spooled:
        """Return a rollout."""
        raw = os.pread(self._file.fileno(), self._size[at], self._offset[at])
        name_size, sampling_size = _HEAD.unpack_from(raw)
        first = _HEAD.size + (0 if name_size == _NO_NAME else name_size)
        second = first + sampling_size
        name, sampling, text = (
            part.decode("utf-8", "surrogatepass")
            for part in (raw[_HEAD.size : first], raw[first:second], raw[second:])
        )
        return Spooled(None if name_size == _NO_NAME else name, sampling, text)

    def _stored(self, digest: bytes, rollouts: list[int]) -> Stored:
        at = rollouts[0]
        if len(rollouts) > 1:
            at = min(rollouts, key=self._rank)
        return Stored(
            at,
            digest,
            self._size[at],
            self._names_of_models[self._model[at]],
            _merged([self._label[one] for one in rollouts]),
            len(rollouts) - 1,
        )

    def _rank(self, at: int) -> tuple[str, str, str]:
        rollout = self.read(at)
        return self._names_of_models[self._model[at]], rollout.name or "", rollout.sampling


def _merged(labels: list[int]) -> bool | None:
    if 0 in labels:
        return False
    return None if -1 in labels else True


# MERGED ``OUTPUT.partial``: where a build works, and finds again what an earlier one left.
#
# The folder lies beside the output, on its disk, and holds the journal of extractions: one record
# a problem under the digest of all that the extractor was given.  So a build that was killed goes
# on where it was; a problem whose text or rollouts changed since is extracted anew, and no other.
# Each extractor and each of its settings has a journal of its own.  The folder goes when the
# output is complete, or when it holds nothing worth keeping.

_PREFIX = "extraction-"


class Workspace:
    """The folder of one build; one process at a time.

    Args:
        output: the file that the build will write.

    Raises:
        InputError: the folder cannot be made, or another build of this output is under way.
    """

    def __init__(self, output: Path) -> None:
        self.folder = output.with_name(output.name + ".partial")
        self._journal: Journal | None = None
        self._done = False
        try:
            self.folder.mkdir(exist_ok=True)
            self._lock = (self.folder / "lock").open("w")
        except OSError as error:
            raise InputError(f"{self.folder}: cannot be made: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise InputError(f"another process is building {output}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        kept = self._journal is not None and len(self._journal) > 0
        if self._journal is not None:
            self._journal.close()
            if not kept:
                self._journal.path.unlink(missing_ok=True)
        others = any(self.folder.glob(f"{_PREFIX}*.jsonl"))
        if self._done or not others:
            shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.close()

    def done(self) -> None:
        """Say that the output is complete."""
        self._done = True

    def open_journal(self, extractor: Row) -> ExtractionJournal:
        """Open the journal of an extractor.

        Args:
            extractor: name, version and thresholds.

        Raises:
            InputError: it cannot be opened.
            DataError: it is damaged.
        """
        path = self.folder / f"{_PREFIX}{digest(extractor)}.jsonl"
        others = any(one != path for one in self.folder.glob(f"{_PREFIX}*.jsonl"))
        self._journal = Journal(path, "extraction", {"extractor": extractor})
        return ExtractionJournal(self._journal, others)


class ExtractionJournal:
    """Extractions by what they were made from.

    Attributes:
        found: problems whose extraction an earlier run left.
        others: whether there are journals of other settings.
    """

    def __init__(self, journal: Journal, others: bool) -> None:
        self._journal = journal
        self.found = len(journal)
        self.others = others

    def get(self, group: Group) -> Extraction | None:
        """Return the extraction of a problem where an earlier run made it from the same."""
        row = self._journal.get(group.inputs)
        return None if row is None else extraction_from_row(row)

    def add(self, group: Group, extraction: Extraction, *, durable: bool) -> None:
        """Keep an extraction; one that is there already stays.

        Args:
            group: the problem.
            extraction: what was made of it.
            durable: bring it to disk at once, because it was paid for.
        """
        if group.inputs not in self._journal:
            row = {"problem_id": group.problem.problem_id, **extraction_to_row(extraction)}
            self._journal.append(group.inputs, row, durable=durable)


# MERGED The problems of a build: listed in a file, or found in the rollouts' own columns.
#
# Listed problems have the last word: text, ground truth, source and split are the file's, and a
# row whose ground truth reads otherwise is only counted, because two sets that use one id for two
# problems must not go unnoticed.  Found problems have what their rows say; where rows of one
# problem differ in text or ground truth, nobody can tell which is right, and the problem is
# excluded by name.

_SHOWN = 60


@dataclass(slots=True)
class Disagreement:
    """Rows that say something else than what is used.

    Attributes:
        count: how many.
        first: one sentence on the first.
    """

    count: int = 0
    first: str = ""

    def note(self, sentence: str) -> None:
        """Count one."""
        self.count += 1
        self.first = self.first or sentence


@dataclass(slots=True)
class Disagreements:
    """What rows disagree on without harm to the dataset; a person should know of it."""

    ground_truths: Disagreement = field(default_factory=Disagreement)
    data_sources: Disagreement = field(default_factory=Disagreement)


class ProblemTable(Protocol):
    """Problems by number, counted from 0 in order of first appearance."""

    disagreements: Disagreements

    def __len__(self) -> int: ...

    def number_of(self, row: Row) -> int | None:
        """Return the number of the problem that a rollout belongs to, None where unknown."""
        ...

    def numbers(self) -> Iterable[int]:
        """Return all numbers in the order of the dataset."""
        ...

    def get(self, number: int) -> Problem | Excluded:
        """Return a problem without nodes, or why it cannot be used."""
        ...


class ListedProblems:
    """The problems of a file, in its order; on disk but for their ids.

    Args:
        path: a dataset or a file of problems; nodes that it has are passed over.
        on_error: what a bad row does.
        report: filled with the counts of rows.
        folder: where they lie, without a name.
        split: put into each problem, where given.

    Raises:
        DataError: the file is bad.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        on_error: OnError,
        report: ReadReport,
        folder: Path,
        split: Literal["train", "test"] | None = None,
    ) -> None:
        self.disagreements = Disagreements()
        self._numbers: dict[str, int] = {}
        self._offsets = array("q")
        self._ground_truths = bytearray()  # a digest each; zeros where there is none
        self._file = tempfile.TemporaryFile(prefix="problems-", dir=folder)  # noqa: SIM115
        for problem in read_problems(path, on_error, report):
            self._numbers[problem.problem_id] = len(self._offsets)
            self._offsets.append(self._file.tell())
            self._ground_truths += _digest(problem.ground_truth)
            bare = replace(problem, nodes=(), split=split or problem.split)
            pickle.dump(bare, self._file, protocol=pickle.HIGHEST_PROTOCOL)
        self._file.flush()

    def __len__(self) -> int:
        return len(self._offsets)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def number_of(self, row: Row) -> int | None:
        problem_id = row["problem_id"]
        number = self._numbers.get(problem_id)
        if number is not None:
            said = _digest(row.get("ground_truth"))
            known = self._ground_truths[number * len(said) : (number + 1) * len(said)]
            if known != said and any(known) and any(said):
                self._disagree(number, row)
        return number

    def _disagree(self, number: int, row: Row) -> None:
        found = self.disagreements.ground_truths
        sentence = ""
        if not found.count:
            known = self.get(number).ground_truth
            sentence = (
                f"{_quoted(row['ground_truth'])} instead of {_quoted(known)} for problem "
                f"{row['problem_id']!r}"
            )
        found.note(sentence)

    def numbers(self) -> Iterable[int]:
        return range(len(self))

    def get(self, number: int) -> Problem:
        self._file.seek(self._offsets[number])
        problem: Problem = pickle.load(self._file)
        return problem


class _Said:
    """The first and the last, in the order of the alphabet, of what rows say of one thing."""

    __slots__ = ("first", "last")

    def __init__(self) -> None:
        self.first: str | None = None
        self.last: str | None = None

    def add(self, text: str | None) -> None:
        if not text or text == self.first or text == self.last:
            return
        if self.first is None or text < self.first:
            self.first = text
        if self.last is None or text > self.last:
            self.last = text

    def differ(self) -> bool:
        """Say whether rows differ otherwise than in white space."""
        return self.first != self.last and _plain(self.first) != _plain(self.last)


class _Found:
    """What the rollouts of one problem say of it."""

    __slots__ = ("data_source", "ground_truth", "problem")

    def __init__(self) -> None:
        self.problem = _Said()
        self.ground_truth = _Said()
        self.data_source = _Said()


class FoundProblems:
    """The problems that rollouts bring along, in the order of their ids.

    Their texts stay in memory: where there are millions of problems, list them in a file.

    Args:
        split: put into each problem, where given.
    """

    def __init__(self, split: Literal["train", "test"] | None = None) -> None:
        self.disagreements = Disagreements()
        self._split = split
        self._numbers: dict[str, int] = {}
        self._found: list[_Found] = []
        self._ids: list[str] = []

    def __len__(self) -> int:
        return len(self._ids)

    def number_of(self, row: Row) -> int | None:
        problem_id = row["problem_id"]
        number = self._numbers.get(problem_id)
        if number is None:
            number = self._numbers[problem_id] = len(self._ids)
            self._ids.append(problem_id)
            self._found.append(_Found())
        found = self._found[number]
        found.problem.add(row.get("problem"))
        found.ground_truth.add(row.get("ground_truth"))
        found.data_source.add(row.get("data_source"))
        return number

    def numbers(self) -> Iterable[int]:
        return sorted(range(len(self)), key=self._ids.__getitem__)

    def get(self, number: int) -> Problem | Excluded:
        found, problem_id = self._found[number], self._ids[number]
        truth = found.ground_truth.first
        problem = Problem(
            problem_id=problem_id,
            ground_truth=truth if truth and not truth.isspace() else None,
            data_source=found.data_source.first or "",
            problem=found.problem.first or "",
            split=self._split,
        )
        for what, said in (("ground_truth", found.ground_truth), ("problem", found.problem)):
            if said.differ():
                return Excluded(
                    problem,
                    "conflicting_rows",
                    f"{what} is {_quoted(said.first)} in one row and {_quoted(said.last)} in "
                    "another",
                )
        if found.data_source.differ():
            first, last = found.data_source.first, found.data_source.last
            self.disagreements.data_sources.note(
                f"{_quoted(first)} and {_quoted(last)} for problem {problem_id!r}"
            )
        return problem


def _digest(text: str | None) -> bytes:
    """Return 8 bytes that stand for a text without white space around it; zeros for none."""
    if text is None or not text.strip():
        return bytes(8)
    return hashlib.blake2b(text.strip().encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _plain(text: str | None) -> list[str]:
    return (text or "").split()


def _quoted(text: str | None) -> str:
    return repr(text if text is None or len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
