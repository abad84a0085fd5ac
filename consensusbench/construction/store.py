"""The inputs of a build on disk, so that memory does not grow with them.

:class:`Inputs` is an SQLite database beside the output (``/tmp`` is often memory).  Its file has no
name and vanishes with the process.  Problems are listed in a file, or found in the rollouts' own
columns.  If rows of one found problem differ in text or ground truth, the problem is excluded.
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
from typing import Any, Literal, NamedTuple, Self, TypeAlias

from consensusbench import Tally
from consensusbench.construction.types import BuildItem, Excluded, Split
from consensusbench.construction.work import batches
from consensuspr.console import one_line
from consensuspr.data import DataError, OnError, Problem, ReadReport, Row, read_problems
from consensuspr.errors import ConsensusPRError

# ``consensusbench sample`` writes this file beside rollouts; every row of a dataset records it.
PROVENANCE_SUFFIX = ".provenance.json"
MAX_PROVENANCE_BYTES = 64 << 10
# Number and bytes of the texts that are in memory at once.
BATCH_LIMITS = (512, 16 << 20)


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


class StoredRollout(NamedTuple):
    """A rollout on disk: its id, how it was sampled as JSON text (or empty), and its text."""

    rollout_id: str | None
    sampling: str
    response: str


@dataclass(frozen=True, slots=True)
class DistinctRollout:
    """A distinct text among the rollouts of a problem, without the text.

    Attributes:
        at: number of the rollout in the inputs; for a repeated text, of the rollout whose model
            and id come first, so that the order of rows does not matter.
        digest: of the text.
        num_bytes: of text, id and sampling.
        label: whether it is correct; False if any copy is labelled so, and None before True.
        repeats: further rollouts with the same text.
    """

    at: int
    digest: bytes
    num_bytes: int
    model: str
    label: bool | None = None
    repeats: int = 0


_SCHEMA = """
CREATE TABLE problem (number INTEGER PRIMARY KEY, id BLOB UNIQUE, pickled BLOB);
CREATE TABLE rollout (problem INT, digest BLOB, model BLOB, name BLOB, sampling BLOB, label INT,
    size INT, response BLOB);
BEGIN
"""

# Columns of rollouts about their problem, and of each the first and the last value in the order of
# the alphabet.
_COLUMNS = ("ground_truth", "problem", "data_source")
_Claims: TypeAlias = dict[str, tuple[str, str]]
Disagreement: TypeAlias = Literal["ground_truth", "data_source"]


class Inputs:
    """The problems of a build and their rollouts; a context manager.

    Problems come from :meth:`list_problems`, or from the rollouts' own columns if that is not
    called.  All of them are there after :meth:`finish`.

    Args:
        folder: of the nameless file.
        split: put into each problem; None: as it is.

    Attributes:
        disagreements: rollouts that name another ground truth than the file of problems, and
            problems whose rollouts name several data sources.
    """

    def __init__(self, folder: Path, split: Split | None = None) -> None:
        self.disagreements: Tally[Disagreement] = Tally()
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
            without_nodes: leave out problems that have nodes.
        """
        self._is_listed = True
        report = ReadReport()
        for problem in read_problems(path, on_error, report):
            if not (without_nodes and problem.nodes):
                bare = replace(problem, nodes=(), split=self._split or problem.split)
                self._put(None, problem.problem_id, bare)
        return report

    def _find(self, problem_id: str) -> tuple[int | None, Any]:
        row = self._database.execute(
            "SELECT number, pickled FROM problem WHERE id = ?", (_bytes(problem_id),)
        ).fetchone()
        return (None, {}) if row is None else (row[0], pickle.loads(row[1]))

    def _put(self, number: int | None, problem_id: str, content: object) -> int:
        """Write a problem or claims of rows about it; return its number, a new one for None."""
        values = (number, _bytes(problem_id), pickle.dumps(content))
        written = self._write("INSERT OR REPLACE INTO problem VALUES (?, ?, ?)", values)
        assert written.lastrowid is not None
        return written.lastrowid

    def add_row(self, row: Row, sampling: str) -> bool:
        """Take a row of rollouts; return whether its problem is known."""
        problem_id = row["problem_id"]
        number, content = self._find(problem_id)
        if self._is_listed:
            if number is None:
                return False
            known = (content.ground_truth or "").strip()
            named = (row.get("ground_truth") or "").strip()
            if known and named and known != named:
                values = f"{one_line(named)!r} instead of {one_line(known)!r}"
                self.disagreements.note("ground_truth", f"{values} for problem {problem_id!r}")
        else:
            claims: _Claims = content | {
                column: (min(first, text), max(last, text))
                for column in _COLUMNS
                if (text := row.get(column))
                for first, last in (content.get(column, (text, text)),)
            }
            if number is None or claims != content:
                number = self._put(number, problem_id, claims)
        rollout = StoredRollout(row.get("rollout_id"), sampling, row["response"])
        self.add(number, row.get("model") or "", rollout, row.get("correct"))
        return True

    def add(
        self, problem: int, model: str, rollout: StoredRollout, label: bool | None = None
    ) -> None:
        """Take one rollout of a problem, and its label."""
        text, sampling = _bytes(rollout.response), _bytes(rollout.sampling)
        name = None if rollout.rollout_id is None else _bytes(rollout.rollout_id)
        size = len(name or b"") + len(sampling) + len(text)
        digest = hashlib.blake2b(text, digest_size=16).digest()
        self._write(
            "INSERT INTO rollout VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (problem, digest, _bytes(model), name, sampling, label, size, text),
        )

    def finish(self) -> None:
        """Take no more; sort the rollouts by problem and text, and make the found problems."""
        # No more columns: what is sorted goes through the system's folder of temporary files.
        self._write("CREATE INDEX by_text ON rollout (problem, digest)")
        if not self._is_listed:
            ids = self._database.execute("SELECT id FROM problem ORDER BY id").fetchall()
            for problem_id in (_text(stored) for [stored] in ids):
                number, claims = self._find(problem_id)
                self._put(number, problem_id, self._found(problem_id, claims))
        self._write("COMMIT")

    def items(self) -> Iterator[tuple[int, BuildItem]]:
        """Yield number and problem, without nodes, in the order of their file or of their ids."""
        order = "number" if self._is_listed else "id"
        for number, pickled in self._database.execute(
            f"SELECT number, pickled FROM problem ORDER BY {order}"
        ):
            content = pickle.loads(pickled)
            yield number, content if isinstance(content, BuildItem) else BuildItem(content)

    def _found(self, problem_id: str, claims: _Claims) -> BuildItem:
        """Return a problem that rollouts name; excluded if they contradict each other."""
        truth, text, source = (claims.get(column, ("", ""))[0] for column in _COLUMNS)
        problem = Problem(
            problem_id=problem_id,
            ground_truth=truth if truth and not truth.isspace() else None,
            data_source=source,
            problem=text,
            split=self._split,
        )
        for column in _COLUMNS:
            first, last = claims.get(column, ("", ""))
            if first.split() == last.split():  # white space is no conflict
                continue
            first, last = repr(one_line(first)), repr(one_line(last))
            if column == "data_source":
                example = f"{first} and {last} for problem {problem_id!r}"
                self.disagreements.note("data_source", example)
            else:
                detail = f"{column} is {first} in one row and {last} in another"
                excluded = Excluded("select", "conflicting_rows", detail)
                return BuildItem(problem, excluded=excluded)
        return BuildItem(problem)

    def rollouts_of_id(self, problem_id: str) -> list[DistinctRollout]:
        """Return the distinct texts of a problem, none if it is unknown."""
        number, _ = self._find(problem_id)
        return [] if number is None else self.rollouts_of(number)

    def rollouts_of(self, problem: int) -> list[DistinctRollout]:
        """Return the distinct texts of a problem, ordered by digest."""
        rows = self._database.execute(
            "SELECT rowid, digest, size, model, label FROM rollout WHERE problem = ?"
            " ORDER BY digest, model, name, sampling",
            (problem,),
        )
        distinct = []
        for digest, same in groupby(rows, key=lambda row: row[1]):
            copies = list(same)
            labels = {label for *_, label in copies}
            at, _, size, model, _ = copies[0]
            label = False if 0 in labels else None if None in labels else True
            distinct.append(DistinctRollout(at, digest, size, _text(model), label, len(copies) - 1))
        return distinct

    def label(self, problem: int, rollout: DistinctRollout, correct: bool | None) -> None:
        """Replace the label of a text of a problem, and of its copies."""
        self._write(
            "UPDATE rollout SET label = ? WHERE problem = ? AND digest = ?",
            (correct, problem, rollout.digest),
        )

    def read(self, at: int) -> StoredRollout:
        """Return a rollout."""
        name, sampling, text = self._database.execute(
            "SELECT name, sampling, response FROM rollout WHERE rowid = ?", (at,)
        ).fetchone()
        return StoredRollout(None if name is None else _text(name), _text(sampling), _text(text))

    def responses(self, rollouts: Sequence[DistinctRollout]) -> Iterator[list[str]]:
        """Read the texts of rollouts, a bounded part at a time."""
        for part in batches(rollouts, lambda rollout: rollout.num_bytes, *BATCH_LIMITS):
            yield [self.read(rollout.at).response for rollout in part]

    def _write(self, statement: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        with _writing():
            return self._database.execute(statement, values)


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise ConsensusPRError(
            f"cannot write the rollouts to disk beside the output: {error}"
        ) from error


def _bytes(text: str) -> bytes:
    """Return text as databases hold it: lone surrogates survive, and order is that of strings."""
    return text.encode("utf-8", "surrogatepass")


def _text(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogatepass")
