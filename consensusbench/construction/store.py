"""What a build keeps on disk: its inputs while it runs, its extractions until it is complete.

``OUTPUT.partial`` lies beside the output, on its disk (``/tmp`` is often memory).  In it:

- :class:`Inputs`, an SQLite database whose file has no name there and vanishes with the process,
  so that memory grows with no number.  A partition by hash was weighed and dropped: it bounds
  memory by the largest partition, gives problems back in the order of hashes, and reads rollouts
  that nobody wants.
- a :class:`~consensusbench.store.Journal` of extractions for each extractor and each of its
  settings: one record a problem under the digest of all that the extractor was given.  A build
  that was killed goes on where it was; a problem whose text or rollouts changed since is extracted
  anew, and no other.  The folder goes when the output is complete, or when it holds nothing worth
  keeping.

Problems are listed in a file, or found in the rollouts' own columns.  Listed problems have the
last word: a row whose ground truth reads otherwise is only counted, because two sets that use one
id for two problems must not go unnoticed.  Where rows of one found problem differ in text or
ground truth, nobody can tell which is right, and the problem is excluded by name.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pickle
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeAlias, TypeVar

from consensusbench.construction.types import Excluded, ProblemRollouts
from consensusbench.extraction.types import Candidate, Dropped, Extraction
from consensusbench.store import Journal, digest
from consensuspr.data import DataError, OnError, Problem, ReadReport, Row, read_problems
from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.settings import check_fields

# What lies beside rollouts that ``consensusbench sample`` wrote: models, prompt and settings.
PROVENANCE_SUFFIX = ".provenance.json"
# It ends up in every row of a dataset.
MAX_PROVENANCE_BYTES = 64 << 10

# Of a text in a message.
_SHOWN_CHARS = 60


# Extractions as plain values.

_Part = TypeVar("_Part", Candidate, Dropped)


def extraction_to_row(extraction: Extraction) -> Row:
    """Return candidates and what was dropped, in their order."""
    return {
        "candidates": [asdict(one) for one in extraction.candidates],
        "dropped": [asdict(one) for one in extraction.dropped],
    }


def extraction_from_row(row: Row) -> Extraction:
    """Return the extraction that a row describes; an InputError names its fault in one clause."""
    return Extraction(
        tuple(_parts(row, "candidates", Candidate)), tuple(_parts(row, "dropped", Dropped))
    )


def _parts(row: Row, key: str, kind: type[_Part]) -> Iterator[_Part]:
    if not isinstance(row.get(key), list):
        raise InputError(f"{key} must be a list")
    for at, raw in enumerate(row[key]):
        where = f"{key}[{at}]"
        values = raw if isinstance(raw, dict) else {}
        given: dict[str, Any] = {}
        for part in fields(kind):
            value = values.get(part.name)
            given[part.name] = tuple(value) if isinstance(value, list) else value
        one = kind(**given)
        check_fields(one, f" of {where}")
        if isinstance(one, Candidate) and not one.expressions:
            raise InputError(f"{where} has no expressions")
        yield one


# How rollouts were sampled.


def sampling_records(rollouts: Iterable[Path]) -> list[Row]:
    """Return what ``consensusbench sample`` wrote beside rollouts files, each content once.

    The order is one of their own, whatever that of the files.  Rollouts from elsewhere have none.
    """
    beside = (Path(f"{path}{PROVENANCE_SUFFIX}") for path in rollouts)
    records = [_sampling_record(path) for path in beside if path.exists()]
    distinct = {json.dumps(record, sort_keys=True): record for record in records}
    return [record for _, record in sorted(distinct.items())]


def _sampling_record(path: Path) -> Row:
    try:
        record: Any = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(str(path), None, f"cannot be read: {error.strerror}") from error
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise DataError(str(path), None, "holds no JSON object; remove it to build without it")
    # Of the run as a whole, not of the rollouts that a problem was made from.
    record.pop("counts", None)
    size = len(json.dumps(record))
    if size > MAX_PROVENANCE_BYTES:
        raise DataError(str(path), None, f"holds {size} bytes, the limit is {MAX_PROVENANCE_BYTES}")
    return record


# What a build reads.


class SpooledRollout(NamedTuple):
    """A rollout as it lies on disk.

    Attributes:
        name: its id, None where it has none.
        sampling: how it was sampled, as JSON text; empty where unknown.
    """

    name: str | None
    sampling: str
    response: str


@dataclass(frozen=True, slots=True)
class DistinctRollout:
    """A distinct text among the rollouts of a problem, without the text.

    Attributes:
        at: number of the rollout in the inputs; where a text is repeated, of the one whose
            model and name come first, so that the order of rows does not matter.
        digest: of the text.
        num_bytes: of the text and what stands before it.
        label: its label; of a repeated text, False where one is, and None before True.
        repeats: further rollouts with the same text.
    """

    at: int
    digest: bytes
    num_bytes: int
    model: str
    label: bool | None = None
    repeats: int = 0


@dataclass(slots=True)
class Disagreement:
    """Rows that say something else than what is used: how many, and one sentence on the first."""

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


_SCHEMA = """
CREATE TABLE problem (number INTEGER PRIMARY KEY, id BLOB UNIQUE, pickled BLOB);
CREATE TABLE rollout (problem INT, digest BLOB, model BLOB, name BLOB, sampling BLOB, label INT,
    size INT, response BLOB);
BEGIN
"""

# What rows may say of their problem.
_COLUMNS = ("ground_truth", "problem", "data_source")
# Of each column that they say, the first and the last in the order of the alphabet.
_Said: TypeAlias = dict[str, tuple[str, str]]


class Inputs:
    """The problems of a build and their rollouts, in a file that vanishes with the process.

    Problems come from :meth:`list_problems`, or from the rollouts' own columns where that is not
    called.  All of them are there after :meth:`finish`, and no more rollouts are taken; unless they
    are those of a run that goes on, where :meth:`go_on` takes more and :meth:`problems` are those
    with rollouts that nobody has worked on.

    Args:
        folder: of the file, which has no name there and needs no care for crashes.
        split: put into each problem; None: as it is.
        growing: the rollouts are those of a run that goes on, and problems are listed.

    Attributes:
        unworked: while they grow, the numbers of the problems with rollouts since :meth:`worked`.
    """

    def __init__(
        self,
        folder: Path,
        split: Literal["train", "test"] | None = None,
        *,
        growing: bool = False,
    ) -> None:
        self.disagreements = Disagreements()
        self.unworked: set[int] = set()
        self._growing = growing
        self._split = split
        self._is_listed = False
        path = folder / f"inputs-{os.getpid()}.sqlite"
        path.unlink(missing_ok=True)
        with _writing():
            self._database = sqlite3.connect(path, isolation_level=None)
            self._database.execute("PRAGMA page_size = 16384")
            for setting in ("journal_mode = OFF", "synchronous = OFF", "locking_mode = EXCLUSIVE"):
                self._database.execute(f"PRAGMA {setting}")
            self._database.executescript(_SCHEMA)
            path.unlink()

    def __len__(self) -> int:
        """Return how many problems there are."""
        [count] = self._database.execute("SELECT count(*) FROM problem").fetchone()
        return int(count)

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def list_problems(
        self, path: str | os.PathLike[str], on_error: OnError, *, without_nodes: bool = False
    ) -> ReadReport:
        """Take the problems of a file, in its order; nodes that they have are passed over.

        Args:
            path: of the file.
            on_error: what a bad row does.
            without_nodes: leave out problems that have some.
        """
        self._is_listed = True
        report = ReadReport()
        for problem in read_problems(path, on_error, report):
            if without_nodes and problem.nodes:
                continue
            bare = replace(problem, nodes=(), split=self._split or problem.split)
            self._put(None, problem.problem_id, bare)
        return report

    def number_of(self, row: Row) -> int | None:
        """Return the number of the problem that a rollout belongs to, None where unknown."""
        found = self._database.execute(
            "SELECT number, pickled FROM problem WHERE id = ?", (_bytes(row["problem_id"]),)
        ).fetchone()
        number: int | None = None
        content: Any = {}
        if found is not None:
            number, content = found[0], pickle.loads(found[1])
        if self._is_listed:
            if number is not None:
                self._compare(row, content)
            return number
        said: _Said = content
        now = said | {
            column: (min(first, text), max(last, text))
            for column in _COLUMNS
            if (text := row.get(column))
            for first, last in (said.get(column, (text, text)),)
        }
        if number is not None and now == said:
            return number
        return self._put(number, row["problem_id"], now)

    def _compare(self, row: Row, problem: Problem) -> None:
        known, said = (problem.ground_truth or "").strip(), (row.get("ground_truth") or "").strip()
        if known and said and known != said:
            self.disagreements.ground_truths.note(
                f"{_quoted(row['ground_truth'])} instead of {_quoted(known)} for problem "
                f"{row['problem_id']!r}"
            )

    def _put(self, number: int | None, problem_id: str, content: Problem | _Said) -> int:
        """Write a problem, or what is said of it; return its number, a new one for None."""
        values = (number, _bytes(problem_id), pickle.dumps(content))
        written = self._write("INSERT OR REPLACE INTO problem VALUES (?, ?, ?)", values)
        assert written.lastrowid is not None
        return written.lastrowid

    def add(
        self, problem: int, model: str, rollout: SpooledRollout, label: bool | None = None
    ) -> None:
        """Take one rollout of a problem, and its label where it has one."""
        name, sampling, text = (None if part is None else _bytes(part) for part in rollout)
        assert sampling is not None and text is not None
        size = len(name or b"") + len(sampling) + len(text)
        mark = hashlib.blake2b(text, digest_size=16).digest()
        self._write(
            "INSERT INTO rollout VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (problem, mark, _bytes(model), name, sampling, label, size, text),
        )
        if self._growing:
            self.unworked.add(problem)

    def finish(self) -> None:
        """Take no more, and sort what there is by problem and text."""
        # No more columns: what is sorted goes through the system's folder of temporary files.
        self._write("CREATE INDEX IF NOT EXISTS by_text ON rollout (problem, digest)")
        self._write("COMMIT")

    def go_on(self) -> None:
        """Take more, after :meth:`finish`."""
        self._write("BEGIN")

    def worked(self, done: Iterable[str]) -> None:
        """Hear that all problems were worked on, and let go of some by their ids."""
        for problem_id in done:
            found = self._database.execute(
                "SELECT number FROM problem WHERE id = ?", (_bytes(problem_id),)
            ).fetchone()
            self._write("DELETE FROM rollout WHERE problem = ?", found)
            self._write("DELETE FROM problem WHERE number = ?", found)
        self.unworked.clear()

    def problems(self) -> Iterator[tuple[int, Problem | Excluded]]:
        """Yield number and problem, without nodes, in the order of the dataset.

        That is the order of their file, or of their ids.  A problem of which rows say different
        things comes with that reason.
        """
        if self._growing:
            for number in sorted(self.unworked):
                [pickled] = self._database.execute(
                    "SELECT pickled FROM problem WHERE number = ?", (number,)
                ).fetchone()
                yield number, pickle.loads(pickled)
            return
        order = "number" if self._is_listed else "id"
        for number, problem_id, pickled in self._database.execute(
            f"SELECT number, id, pickled FROM problem ORDER BY {order}"
        ):
            content = pickle.loads(pickled)
            yield number, content if self._is_listed else self._found(_text(problem_id), content)

    def _found(self, problem_id: str, said: _Said) -> Problem | Excluded:
        truth, _ = said.get("ground_truth", ("", ""))
        problem = Problem(
            problem_id=problem_id,
            ground_truth=truth if truth and not truth.isspace() else None,
            data_source=said.get("data_source", ("", ""))[0],
            problem=said.get("problem", ("", ""))[0],
            split=self._split,
        )
        for column in _COLUMNS:
            first, last = said.get(column, ("", ""))
            if first.split() == last.split():  # white space is no conflict
                continue
            if column == "data_source":
                self.disagreements.data_sources.note(
                    f"{_quoted(first)} and {_quoted(last)} for problem {problem_id!r}"
                )
            else:
                detail = f"{column} is {_quoted(first)} in one row and {_quoted(last)} in another"
                return Excluded(problem, "conflicting_rows", detail)
        return problem

    def rollouts_of(self, problem: int) -> list[DistinctRollout]:
        """Return the distinct texts of a problem, ordered by digest."""
        rows = self._database.execute(
            "SELECT rowid, digest, size, model, label FROM rollout WHERE problem = ?"
            " ORDER BY digest, model, name, sampling",
            (problem,),
        )
        distinct = []
        for mark, same in groupby(rows, key=lambda row: row[1]):
            copies = list(same)
            labels = {label for *_, label in copies}
            at, _, size, model, _ = copies[0]
            label = False if 0 in labels else None if None in labels else True
            distinct.append(DistinctRollout(at, mark, size, _text(model), label, len(copies) - 1))
        return distinct

    def read(self, at: int) -> SpooledRollout:
        """Return a rollout."""
        name, sampling, text = self._database.execute(
            "SELECT name, sampling, response FROM rollout WHERE rowid = ?", (at,)
        ).fetchone()
        return SpooledRollout(None if name is None else _text(name), _text(sampling), _text(text))

    def _write(self, statement: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        with _writing():
            return self._database.execute(statement, values)


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise ConsensusPRError(
            f"the rollouts cannot be put on disk beside the output: {error}"
        ) from error


def _bytes(text: str) -> bytes:
    """Return text as databases hold it: lone surrogates survive, and order is that of strings."""
    return text.encode("utf-8", "surrogatepass")


def _text(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogatepass")


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…")


# The folder, and what an earlier build left in it.


class Workspace:
    """``OUTPUT.partial``, for one process at a time.

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

    def __exit__(self, *exception: object) -> None:
        if self._journal is not None:
            self._journal.close()
            if not len(self._journal):
                self._journal.path.unlink()
        if self._done or not self._journals():
            shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.close()

    def done(self) -> None:
        """Say that the output is complete."""
        self._done = True

    def open_journal(self, extractor: Row) -> tuple[int, bool]:
        """Open the journal of an extractor; another one, or another of its settings, has its own.

        Returns:
            How many extractions an earlier run left, and whether there are some of others.
        """
        path = self.folder / f"extraction-{digest(extractor)}.journal"
        for end in ("-wal", ""):  # the name that the version before this one gave it
            old = Path(f"{path.with_suffix('.jsonl')}{end}")
            if old.exists():
                old.rename(f"{path}{end}")
        others = any(one != path for one in self._journals())
        self._journal = Journal(path, "extraction", {"extractor": extractor})
        return len(self._journal), others

    def get(self, chosen: ProblemRollouts) -> Extraction | None:
        """Return the extraction of a problem where an earlier run made it from the same."""
        assert self._journal is not None, "the journal is open"
        row = self._journal.get(chosen.inputs)
        return None if row is None else extraction_from_row(row)

    def keep(self, chosen: ProblemRollouts, extraction: Extraction, *, durable: bool) -> None:
        """Keep an extraction in the journal; one that is there already stays.

        Args:
            durable: bring it to disk at once, because it was paid for.
        """
        assert self._journal is not None, "the journal is open"
        if chosen.inputs not in self._journal:
            row = {"problem_id": chosen.problem.problem_id, **extraction_to_row(extraction)}
            self._journal.append(chosen.inputs, row, durable=durable)

    def _journals(self) -> list[Path]:
        return [*self.folder.glob("extraction-*.journal"), *self.folder.glob("extraction-*.jsonl")]
