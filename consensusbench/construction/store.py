"""The inputs of a build on disk, so that memory does not grow with them.

:class:`Inputs` is an SQLite database beside the output (``/tmp`` is often memory).  Its file has no
name and vanishes with the process.  Problems are listed in a file, or found in the rollouts' own
columns.  Where rows of one found problem differ in text or ground truth, the problem is excluded.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias

from consensusbench.construction.types import Excluded, Split
from consensuspr.console import one_line
from consensuspr.data import DataError, OnError, Problem, ReadReport, Row, read_problems
from consensuspr.errors import ConsensusPRError

# What ``consensusbench sample`` writes beside rollouts; it ends up in every row of a dataset.
PROVENANCE_SUFFIX = ".provenance.json"
MAX_PROVENANCE_BYTES = 64 << 10


def sampling_records(rollouts: Iterable[Path]) -> list[Row]:
    """Return what ``consensusbench sample`` wrote beside rollouts files, each content once.

    The order does not depend on that of the files.
    """
    distinct: dict[str, Row] = {}
    for path in (Path(f"{path}{PROVENANCE_SUFFIX}") for path in rollouts):
        if not path.exists():
            continue
        try:
            record: Any = json.loads(path.read_bytes())
        except (OSError, ValueError):
            record = None
        if not isinstance(record, dict):
            raise DataError(str(path), None, "holds no JSON object; remove it to build without it")
        # Of the run as a whole, not of the rollouts that a problem was made from.
        record.pop("counts", None)
        text = json.dumps(record, sort_keys=True)
        if len(text) > MAX_PROVENANCE_BYTES:
            limit = f"the limit is {MAX_PROVENANCE_BYTES}"
            raise DataError(str(path), None, f"holds {len(text)} bytes, {limit}")
        distinct[text] = record
    return [record for _, record in sorted(distinct.items())]


class SpooledRollout(NamedTuple):
    """A rollout on disk: its id, how it was sampled as JSON text (or empty), and its text."""

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
        num_bytes: of text, name and sampling.
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
class Noted:
    """How many clauses were noted, and the first."""

    count: int = 0
    first: str = ""

    def append(self, clause: str) -> None:
        """Note one."""
        self.count += 1
        self.first = self.first or clause


_SCHEMA = """
CREATE TABLE problem (number INTEGER PRIMARY KEY, id BLOB UNIQUE, pickled BLOB);
CREATE TABLE rollout (problem INT, digest BLOB, model BLOB, name BLOB, sampling BLOB, label INT,
    size INT, response BLOB);
BEGIN
"""

# What rows may say of their problem.
_COLUMNS = ("ground_truth", "problem", "data_source")
# Of each column, the first and the last value in the order of the alphabet.
_Said: TypeAlias = dict[str, tuple[str, str]]


class Inputs:
    """The problems of a build and their rollouts; a context manager.

    Problems come from :meth:`list_problems`, or from the rollouts' own columns where that is not
    called.  All of them are there after :meth:`finish`.

    Args:
        folder: of the nameless file.
        split: put into each problem; None: as it is.

    Attributes:
        ground_truths: of rollouts that name another ground truth than the file of problems, a
            clause on each.
        data_sources: the same of problems whose rollouts name several data sources.
    """

    def __init__(self, folder: Path, split: Split | None = None) -> None:
        self.ground_truths = Noted()
        self.data_sources = Noted()
        self._split = split
        self._is_listed = False
        path = folder / f".inputs-{os.getpid()}.sqlite"
        path.unlink(missing_ok=True)
        with _writing():
            self._database = sqlite3.connect(path, isolation_level=None)
            self._database.execute("PRAGMA page_size = 16384")
            for setting in ("journal_mode = OFF", "synchronous = OFF", "locking_mode = EXCLUSIVE"):
                self._database.execute(f"PRAGMA {setting}")
            self._database.executescript(_SCHEMA)
            path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._database.close()

    def __len__(self) -> int:
        """Return how many problems there are."""
        [count] = self._database.execute("SELECT count(*) FROM problem").fetchone()
        return int(count)

    def list_problems(
        self, path: str | os.PathLike[str], on_error: OnError, *, without_nodes: bool = False
    ) -> ReadReport:
        """Take the problems of a file, in its order; their nodes are ignored.

        Args:
            path: of the file.
            on_error: what a bad row does.
            without_nodes: leave out problems that have some.
        """
        self._is_listed = True
        report = ReadReport()
        for problem in read_problems(path, on_error, report):
            if not (without_nodes and problem.nodes):
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
            self.ground_truths.append(
                f"{one_line(said)!r} instead of {one_line(known)!r} for problem "
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

    def finish(self) -> None:
        """Take no more, and sort what there is by problem and text."""
        # No more columns: what is sorted goes through the system's folder of temporary files.
        self._write("CREATE INDEX by_text ON rollout (problem, digest)")
        self._write("COMMIT")

    def problems(self) -> Iterator[tuple[int, Problem | Excluded]]:
        """Yield number and problem, without nodes, in the order of their file or of their ids.

        A problem whose rows differ is excluded with that reason.
        """
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
            first, last = repr(one_line(first)), repr(one_line(last))
            if column == "data_source":
                self.data_sources.append(f"{first} and {last} for problem {problem_id!r}")
            else:
                detail = f"{column} is {first} in one row and {last} in another"
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
