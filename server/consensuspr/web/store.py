"""The store: the light columns of all samples in DuckDB.

One database in a temporary file, with a bound on its memory.  A thread fills it batch by batch, so
that there is something to see at once, and goes on while runs grow.
:class:`~consensuspr.score_log.reader.LogReader` decides which rows count.  Texts stay in their
files: a sample has a place there.

One :class:`Moment` is a transaction of the database, and the runs as they were when it began, so
that the counts, rows and rates of one document agree.

A :class:`Filter` is a choice of samples.  Its values reach DuckDB as parameters alone.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self, TypeAlias

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from consensuspr.console import one_line
from consensuspr.data.writers import arrow_array
from consensuspr.errors import DataError, InputError
from consensuspr.scoring.types import SAMPLE_KEY_BYTES
from consensuspr.server.folders import temporary_folder
from consensuspr.web.sources import FOLDER_PREFIX, WHOLE, Source

# Of DuckDB; what does not fit goes to its temporary folder.
MEMORY: Final = "96MB"
THREADS: Final = 2
# Between two looks at runs that may grow.
POLL_S: Final = 1.0
# Of one request that searches texts: how long, how many samples, and bytes of texts in memory.
SEARCH_S: Final = 1.0
SEARCH_ROWS: Final = 200_000
SEARCH_BYTES: Final = 16 << 20
# Results that are kept until more samples come.
MAX_KEPT: Final = 16
# Problems that are put into the database together.
_PROBLEM_ROWS: Final = 8192

MAX_LIMIT: Final = 500
MAX_OFFSET: Final = 10_000_000
MAX_VALUES: Final = 100
MAX_CHARS: Final = 1024

_log = logging.getLogger(__name__)

Row: TypeAlias = dict[str, Any]
Query: TypeAlias = Sequence[tuple[str, str]]

# Of a sample in a list: its type, and the SQL that takes it from a batch if that is not its name.
_TEXT, _WHOLE, _FLOAT = "VARCHAR", "BIGINT", "DOUBLE"
_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "run": ("INTEGER", "$run"), "key": (_TEXT,), "identity": ("INTEGER",),
    "time": (_FLOAT, '"time" / 1e6'), "step": (_WHOLE,), "epoch": (_WHOLE,),
    "split": (_TEXT, "nullif(split, '')"), "group": (_TEXT, "nullif(group_id, '')"),
    "rollout_id": (_TEXT,), "problem": (_TEXT, "problem_id"),
    "source": (_TEXT, "nullif(data_source, '')"), "model": (_TEXT, "nullif(model, '')"),
    "diagnosis": (_TEXT, "nullif(diagnosis, '')"), "status": (_TEXT,), "reward": (_FLOAT,),
    "score": (_FLOAT, "coalesce(final_score, reward)"), "penalty": (_FLOAT,), "acc": (_FLOAT,),
    "ncr": (_FLOAT,), "ncr_raw": (_FLOAT,), "guard": (_FLOAT,), "num_nodes": ("INTEGER",),
    "num_matched": ("INTEGER",), "tpn": (_FLOAT,), "num_tokens": (_WHOLE,),
    "response_size": (_WHOLE,), "channels": (_TEXT,), "answer": (_TEXT, "left(answer, 200)"),
    "answer_method": (_TEXT,), "message": (_TEXT, "left(message, 500)"), "scored_by": (_TEXT,),
}  # fmt: skip
SHOWN: Final = tuple(_COLUMNS)
_TABLES: Final = (
    'CREATE TABLE samples (writer INTEGER, "row" BIGINT, '
    + ", ".join(f'"{name}" {column[0]}' for name, column in _COLUMNS.items())
    + "); CREATE TABLE problems (problem VARCHAR, text VARCHAR, ground_truth VARCHAR,"
    " source VARCHAR)"
)
_INSERT: Final = 'INSERT INTO samples SELECT writer, "row", ' + ", ".join(
    column[1] if len(column) > 1 else name for name, column in _COLUMNS.items()
) + " FROM batch"  # fmt: skip
# What rows of one value share, and what names the dataset among it.
IDENTITY: Final = (
    "dataset", "dataset_digest", "normal_form_version", "answer_version", "server_version",
    "scoring_version", "reward_spec", "answer_rule", "on_undecided",
)  # fmt: skip
# Why one would look at a sample, by name; the rules of `kind`.
FLAGS: Final = {
    "guarded": "coalesce(guard < 1, false)",
    "wrong_high": "coalesce(acc = 0 AND ncr >= 0.5, false)",
    "right_none": "coalesce(acc = 1 AND num_nodes > 0 AND num_matched = 0, false)",
    "failed": "status <> 'OK'",
}
SUSPICIOUS: Final = ("guarded", "wrong_high", "right_none")
KINDS: Final = ("suspicious", *FLAGS)
VERDICTS: Final = {"right": "acc = 1", "wrong": "acc = 0", "unknown": "acc IS NULL"}
# What a list may be sorted by: all that is shown and has an order.
SORTS: Final = tuple(
    name for name in SHOWN if name not in ("run", "key", "identity", "message", "channels")
)
_NEWEST: Final = 'step DESC NULLS LAST, "time" DESC NULLS LAST, writer DESC, "row" DESC'
# Texts that are compared as they are; "" stands for those that have none.
_TEXTS: Final = ("split", "source", "model", "diagnosis", "status", "problem", "group")
_RANGES: Final = {
    "step": "step", "ncr": "ncr", "reward": "score", "tokens": "num_tokens", "guard": "guard",
}  # fmt: skip
PARAMETERS: Final = (
    "run", *_TEXTS, *_RANGES, "dataset", "node", "verdict", "guarded", "kind", "q", "sort",
    "desc", "offset", "limit",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Filter:
    """Which samples, in which order, and which page of them.

    Attributes:
        runs: ids; none: all.
        texts: allowed values by column; None among them: none known.
        ranges: lowest and highest value by column, both included.
        unknown: columns of which no value is known.
        dataset: digest of the dataset that scored; None: any.
        node: reached this node of its problem, counted from 0.
        verdict: right, wrong or unknown.
        guarded: whether the guard lowered NCR.
        kind: one of :data:`KINDS`.
        q: text in the response, whatever the case of its letters; goes with no sort.
        sort: one of :data:`SORTS`; None: the newest first.
    """

    runs: tuple[int, ...] = ()
    texts: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    dataset: str | None = None
    node: int | None = None
    verdict: str | None = None
    guarded: bool | None = None
    kind: str | None = None
    q: str = ""
    sort: str | None = None
    desc: bool = True
    offset: int = 0
    limit: int = 50

    @classmethod
    def of(cls, query: Query, allowed: Sequence[str] = PARAMETERS) -> Self:
        """Return the filter of the parameters of an address.

        Raises:
            InputError: names the parameter, its value and what it may be.
        """
        given: dict[str, list[str]] = {}
        for name, value in query:
            if name not in allowed:
                raise InputError(
                    f"there is no parameter {_shown(name)} here; there are {', '.join(allowed)}"
                )
            if len(value) > MAX_CHARS:
                raise InputError(f"{name} has {len(value)} characters, the limit is {MAX_CHARS}")
            given.setdefault(name, []).append(value)
        for name, values in given.items():
            limit = MAX_VALUES if name in _TEXTS or name == "run" else 1
            if len(values) > limit:
                raise InputError(f"{name} is given {len(values)} times, the limit is {limit}")
        single = {name: values[0] for name, values in given.items()}
        if single.get("q") and single.get("sort"):
            raise InputError("sort does not go with q: texts are searched from the newest on")
        return cls(
            runs=tuple(_whole("run", value, 0, MAX_OFFSET) for value in given.get("run", ())),
            texts={
                name: tuple(value or None for value in given[name])
                for name in _TEXTS
                if name in given
            },
            ranges={
                column: _range(name, single[name])
                for name, column in _RANGES.items()
                if single.get(name)
            },
            dataset=single.get("dataset") or None,
            node=_whole("node", single["node"], 0, MAX_OFFSET) if single.get("node") else None,
            verdict=choice("verdict", single, VERDICTS),
            guarded={None: None, "0": False, "1": True}[choice("guarded", single, ("0", "1"))],
            kind=choice("kind", single, KINDS),
            q=single.get("q", ""),
            sort=choice("sort", single, SORTS),
            desc=choice("desc", single, ("0", "1")) != "0",
            offset=_whole("offset", single.get("offset", "0"), 0, MAX_OFFSET),
            limit=_whole("limit", single.get("limit", "50"), 1, MAX_LIMIT),
        )

    @property
    def order(self) -> str:
        """The order in SQL; ties by the newest."""
        if self.sort is None:
            return _NEWEST if self.desc else _NEWEST.replace("DESC", "ASC")
        return f'"{self.sort}" {"DESC" if self.desc else "ASC"} NULLS LAST, {_NEWEST}'

    def where(
        self, numbers: Sequence[int], scored_by: Callable[[str], Sequence[int]]
    ) -> tuple[str, list[Any]]:
        """Return the condition in SQL and its values, the text aside.

        Args:
            numbers: of the runs that are meant.
            scored_by: returns the identities of samples that a dataset scored, by its digest.
        """
        parts = ["run IN (SELECT unnest(?))"]
        values: list[Any] = [list(numbers)]
        for name, allowed in self.texts.items():
            known = [value for value in allowed if value is not None]
            ways = [f'"{name}" IN (SELECT unnest(?))'] if known else []
            values += [known] if known else []
            ways += [f'"{name}" IS NULL'] if None in allowed else []
            parts.append(f"({' OR '.join(ways)})")
        for name, (low, high) in self.ranges.items():
            parts.append(f'"{name}" BETWEEN ? AND ?')
            values += [low, high]
        parts += [f'"{name}" IS NULL' for name in self.unknown]
        if self.dataset is not None:
            parts.append("identity IN (SELECT unnest(?::INTEGER[]))")
            values.append(list(scored_by(self.dataset)))
        if self.node is not None:
            parts.append("coalesce(substr(channels, ? + 1, 1) NOT IN ('', '-'), false)")
            values.append(self.node)
        if self.verdict is not None:
            parts.append(VERDICTS[self.verdict])
        if self.guarded is not None:
            parts.append(FLAGS["guarded"] if self.guarded else f"NOT {FLAGS['guarded']}")
        if self.kind is not None:
            meant = SUSPICIOUS if self.kind == "suspicious" else (self.kind,)
            parts.append(f"({' OR '.join(FLAGS[name] for name in meant)})")
        return " AND ".join(parts), values


def _shown(value: str) -> str:
    return repr(one_line(value, 60))


def choice(name: str, given: Mapping[str, str], known: Iterable[str]) -> str | None:
    """Return a parameter that has one of a few values, None if it is not given.

    Raises:
        InputError: it has another value.
    """
    value = given.get(name) or None
    if value is not None and value not in known:
        raise InputError(f"{name} must be one of {', '.join(known)}, got {_shown(value)}")
    return value


def _whole(name: str, value: str, low: int, high: int) -> int:
    if not (value.isascii() and value.isdigit() and low <= int(value[:20]) <= high):
        raise InputError(f"{name} must be a number from {low} to {high}, got {_shown(value)}")
    return int(value)


def _range(name: str, value: str) -> tuple[float, float]:
    low, dots, high = value.partition("..")
    try:
        ends = (float(low or "-inf"), float(high or "inf")) if dots else (float(value),) * 2
    except ValueError:
        ends = (math.nan, math.nan)
    if value == ".." or not ends[0] <= ends[1]:
        raise InputError(f"{name} must be N, N..M, N.. or ..M, got {_shown(value)}")
    return ends


@dataclass(slots=True)
class Run:
    """One source in the store.

    Attributes:
        id: in addresses, from 0 in the order of the command line.
        whole: whether it was read to its end once.
        rows: how many of its samples are there.
        failed: why it cannot be read on; empty if it can.
        defect: whether it is not read on because of a defect of the page.
    """

    id: int
    source: Source
    whole: bool = False
    rows: int = 0
    failed: str = ""
    defect: bool = False

    def left_out(self) -> list[str]:
        """Return sentences about rows that are not shown."""
        return [*self.source.left_out(), *([self.failed] if self.failed else [])]


class Store:
    """The samples of some runs.  Its methods may be called in any thread.

    Args:
        sources: of runs; closed with the store.
        memory: that DuckDB may take.

    Attributes:
        runs: as they are now, by their ids.
        assumed: digest of the dataset of samples whose dataset is not known.
        writers: run and name of each writer, by number.
        identities: numbers of what samples were scored under (:data:`IDENTITY`).
        texts: held while many texts are in memory.
    """

    def __init__(self, sources: Sequence[Source], *, memory: str = MEMORY) -> None:
        self.assumed: str | None = None
        self._stack = ExitStack()
        folder = temporary_folder(FOLDER_PREFIX, self._stack)
        self._database = duckdb.connect(
            str(folder / "samples.duckdb"),
            config={
                "memory_limit": memory,
                "threads": THREADS,
                "temp_directory": str(folder / "spilled"),
                "preserve_insertion_order": False,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            },
        )
        self.runs = [Run(at, source) for at, source in enumerate(sources)]
        self.writers: list[tuple[int, str]] = []
        self._writer_numbers: dict[tuple[int, str], int] = {}
        self.identities: dict[tuple[Any, ...], int] = {}
        self.texts = threading.Lock()
        self._keeping = threading.Lock()
        self._kept: dict[tuple[Any, ...], Any] = {}
        self._kept_of = -1  # the revision of what is kept
        # Held while samples are put in: rows, runs and revision change together.
        self._changing = threading.Lock()
        self._revision = 0
        self._database.execute(_TABLES)
        # Queries may not read files.
        self._database.execute("SET enable_external_access = false")
        self._database.execute("SET lock_configuration = true")
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._fill, name="watch-fill", daemon=True)

    def start(self) -> None:
        """Begin to read, beside whatever is asked."""
        self._thread.start()

    def read_whole(self) -> None:
        """Read all that there is now, before anything is asked; instead of :meth:`start`.

        Raises:
            InputError: a run cannot be read.
        """
        for run in self.runs:
            for _ in self._read(run):
                pass
            if run.failed:
                raise InputError(f"{run.source.path}: {run.failed}")

    def close(self) -> None:
        """Stop reading and remove what was kept."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        for run in self.runs:
            run.source.close()
        # A download that is under way still uses the database; it ends with the process.
        with contextlib.suppress(duckdb.Error):
            self._database.close()
        self._stack.close()

    def changed(self) -> None:
        """Count up the revision."""
        with self._changing:
            self._revision += 1

    @contextmanager
    def moment(self) -> Iterator[Moment]:
        """Give what there is at this moment, until the block is left."""
        cursor = self._database.cursor()
        try:
            with self._changing:
                cursor.begin()
                cursor.execute("SELECT 1 FROM samples LIMIT 1").fetchall()  # the first look decides
                runs = [replace(run) for run in self.runs]
                moment = Moment(self, cursor, self._revision, runs)
            yield moment
        finally:
            cursor.close()

    def remembered(self, revision: int, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """Return a result of a revision, made once and kept as long as it is the newest."""
        with self._keeping:
            if revision > self._kept_of:
                self._kept, self._kept_of = {}, revision
            if revision == self._kept_of and key in self._kept:
                return self._kept[key]
        made = make()
        with self._keeping:
            if revision == self._kept_of:
                if len(self._kept) >= MAX_KEPT:
                    del self._kept[next(iter(self._kept))]
                self._kept[key] = made
        return made

    # Reading

    def _fill(self) -> None:
        while not self._closing.is_set():
            # In turns: of each run something is there soon.
            reading = [
                self._read(run)
                for run in self.runs
                if not run.whole or (run.source.grows and not run.defect)
            ]
            while reading and not self._closing.is_set():
                reading = [part for part in reading if next(part, None)]
            self._closing.wait(POLL_S)

    def _read(self, run: Run) -> Iterator[bool]:
        """Take what has come of a run, a part at a time."""
        before = (run.whole, run.left_out())
        failed = ""
        try:
            for batch in run.source.read():
                self._withdraw(run)
                if batch.num_rows:
                    self._insert(run, batch)
                    yield True
            self._withdraw(run)
            run.whole = True
        except (DataError, InputError, OSError) as error:
            failed = str(error)
        except Exception:
            # A thread that ends would leave all other runs as they are.
            _log.exception("reading %s failed", run.source.path)
            failed = "cannot be read: a defect, which is logged"
            run.defect = True
        if failed and (run.defect or not run.source.grows):  # nothing comes any more
            run.whole = True
            failed += f"; all rows after the first {run.rows:,} are missing"
        run.failed = failed
        # Kept results hold as long as nothing comes.
        if (run.whole, run.left_out()) != before:
            self.changed()

    def _withdraw(self, run: Run) -> None:
        """Take out the samples that do not count any more."""
        for writer, rows in run.source.withdrawn().items():
            with self._changing, self._database.cursor() as cursor:
                number = self._writer_numbers[run.id, writer]
                cursor.execute(
                    'DELETE FROM samples WHERE writer = ? AND "row" IN (SELECT unnest(?))',
                    [number, rows.tolist()],
                )
                run.rows -= len(rows)
                self._revision += 1

    def _insert(self, run: Run, batch: pa.RecordBatch) -> None:
        table = _finite(pa.Table.from_batches([batch]))
        writers = [(run.id, name) for name in table.column("writer").unique().to_pylist()]
        for writer in writers:
            if writer not in self._writer_numbers:
                self._writer_numbers[writer] = len(self.writers)
                self.writers.append(writer)
        # All rows of a batch are of one writer.
        [number] = [self._writer_numbers[writer] for writer in writers]
        changed = {
            "key": _hex(table.column("key")),
            "time": table.column("time").cast(pa.int64()),
            "channels": _letters(table.column("channels")),
            "writer": pa.repeat(pa.scalar(number, pa.int32()), table.num_rows),
        }
        for name, column in changed.items():
            table = table.set_column(table.schema.get_field_index(name), name, column)
        table = table.append_column("identity", self._identities_of(table))
        with self._changing, self._database.cursor() as cursor:
            cursor.register("batch", table.drop_columns(list(IDENTITY)))
            cursor.execute(_INSERT, {"run": run.id})
            run.rows += table.num_rows
            self._revision += 1

    def _identities_of(self, table: pa.Table) -> pa.Array:
        values = table.select(list(IDENTITY))
        known = values.group_by(list(IDENTITY)).aggregate([]).to_pylist()
        numbers = pa.nulls(table.num_rows, pa.int32())
        for row in known:
            identity = tuple(row[name] for name in IDENTITY)
            number = self.identities.setdefault(identity, len(self.identities))
            if len(known) == 1:
                return pa.repeat(pa.scalar(number, pa.int32()), table.num_rows)
            same = pa.repeat(pa.scalar(True), table.num_rows)
            for name, value in row.items():
                column = values.column(name).combine_chunks()
                equal = pc.is_null(column) if value is None else pc.equal(column, value)
                same = pc.and_(same, pc.fill_null(equal, False))
            numbers = pc.if_else(same, pa.scalar(number, pa.int32()), numbers)
        return numbers

    def add_problems(self, rows: Iterable[tuple[str, str, str | None, str]]) -> None:
        """Keep texts, ground truths and sources of problems by their ids."""
        names = ("problem", "text", "ground_truth", "source")
        rows = iter(rows)
        while some := list(itertools.islice(rows, _PROBLEM_ROWS)):
            columns = [
                arrow_array(pa, [*column], pa.string()) for column in zip(*some, strict=True)
            ]
            with self._database.cursor() as cursor:
                cursor.register("batch", pa.table(columns, names=names))
                cursor.execute("INSERT INTO problems SELECT * FROM batch")


class Moment:
    """What there is at one moment, whatever comes meanwhile.  For one thread at a time.

    Attributes:
        revision: grows whenever there is more to see.
        runs: as they were.
    """

    def __init__(
        self,
        store: Store,
        cursor: duckdb.DuckDBPyConnection,
        revision: int,
        runs: Sequence[Run],
    ) -> None:
        self.revision = revision
        self.runs = runs
        self._store = store
        self._cursor = cursor

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return the rows of a query as dictionaries."""
        found = self._cursor.execute(sql, values)
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def table(self, sql: str, values: Sequence[Any]) -> pa.Table:
        """Return the rows of a query in columns, which take a tenth of the memory."""
        return self._cursor.sql(sql, params=list(values)).to_arrow_table()

    def run(self, number: int) -> Run:
        """Return a run by its id.

        Raises:
            LookupError: there is none.
        """
        if not 0 <= number < len(self.runs):
            raise LookupError(f"there is no run {number}; there are 0 to {len(self.runs) - 1}")
        return self.runs[number]

    def identity(self, number: int) -> Row:
        """Return what some samples were scored under."""
        identities = self._store.identities.copy()
        found = next(values for values, at in identities.items() if at == number)
        return dict(zip(IDENTITY, found, strict=True))

    def dataset_of(self, identity: int) -> str | None:
        """Return the digest of the dataset that scored some samples, or that is assumed to have."""
        digest: str | None = self.identity(identity)["dataset_digest"]
        return self._store.assumed if digest is None else digest

    def scored_by(self, digest: str) -> list[int]:
        """Return the identities of samples that a dataset scored."""
        numbers = list(self._store.identities.values())
        return [number for number in numbers if self.dataset_of(number) == digest]

    def condition(self, wanted: Filter) -> tuple[str, list[Any]]:
        """Return the condition in SQL of a filter, the text aside, and its values.

        Raises:
            LookupError: there is no such run.
        """
        numbers = [self.run(number).id for number in wanted.runs or range(len(self.runs))]
        return wanted.where(numbers, self.scored_by)

    def count(self, wanted: Filter) -> int:
        """Return how many samples there are, the text aside."""
        where, values = self.condition(wanted)
        sql = f"SELECT count(*) AS n FROM samples WHERE {where}"
        total: int = self.remembered(
            ("count", where, repr(values)), lambda: self.rows(sql, values)[0]["n"]
        )
        return total

    def page(self, wanted: Filter) -> list[Row]:
        """Return a page of samples, the text aside."""
        where, values = self.condition(wanted)
        return self._page(where, values, wanted)

    def _page(self, where: str, values: Sequence[Any], wanted: Filter) -> list[Row]:
        shown = ", ".join(f'"{name}"' for name in SHOWN)
        flags = ", ".join(f"{rule} AS flag_{name}" for name, rule in FLAGS.items())
        # What decides the order is sorted alone: a row is ten times as wide.
        found = self.rows(
            f"SELECT {shown}, {flags} FROM samples WHERE rowid IN (SELECT rowid FROM samples"
            f" WHERE {where} ORDER BY {wanted.order} LIMIT ? OFFSET ?) ORDER BY {wanted.order}",
            [*values, wanted.limit, wanted.offset],
        )
        for row in found:
            row["flags"] = [name for name in FLAGS if row.pop(f"flag_{name}")]
        return found

    def search(self, wanted: Filter) -> tuple[list[Row], Row]:
        """Return samples with a text, looked for from the offset on, and how far that came.

        It ends after :data:`SEARCH_S`, or when it has found ``limit`` samples.
        """
        end = time.monotonic() + SEARCH_S
        where, values = self.condition(wanted)
        places = self.table(
            'SELECT rowid, writer, "row", coalesce(response_size, 0) AS size FROM samples'
            f" WHERE {where} ORDER BY {wanted.order} LIMIT {SEARCH_ROWS} OFFSET {wanted.offset}",
            values,
        )
        sizes = np.cumsum(places.column("size").to_numpy())
        found: list[int] = []
        at = without_text = 0
        # At least one part, however slow the query was.
        while at < len(sizes) and len(found) < wanted.limit and not (at and time.monotonic() > end):
            before = int(sizes[at - 1]) if at else 0
            behind = max(at + 1, int(np.searchsorted(sizes, before + SEARCH_BYTES, "right")))
            with self._store.texts:
                texts = self._texts_at(places.slice(at, behind - at))
                without_text += texts.null_count
                hits = pc.match_substring(texts, wanted.q, ignore_case=True)
                some = np.flatnonzero(pc.fill_null(hits, False))[: wanted.limit - len(found)]
                del texts
                # The allocator keeps what is freed, several times what is held.
                pa.default_memory_pool().release_unused()
            found += places.column("rowid").to_numpy()[at + some].tolist()
            full = len(found) == wanted.limit
            at = at + int(some[-1]) + 1 if full and len(some) else behind
        rows = self._page(
            "rowid IN (SELECT unnest(?::BIGINT[]))", [found], replace(wanted, offset=0)
        )
        total = self.count(wanted)
        searched = wanted.offset + at
        return rows, {
            "searched": searched,
            "candidates": total,
            "complete": searched >= total,
            "without_text": without_text,
        }

    def _texts_at(self, places: pa.Table) -> pa.ChunkedArray:
        """Return the texts at some places, null if one is not kept or cannot be read."""
        writers, rows = (places.column(name).to_numpy() for name in ("writer", "row"))
        order = np.lexsort((rows, writers))
        parts = []
        for part in np.split(order, np.flatnonzero(np.diff(writers[order])) + 1):
            number, writer = self._store.writers[int(writers[part[0]])]
            source = self._store.runs[number].source
            try:
                read = source.rows_at(writer, rows[part].tolist(), ["response"])
                parts.append(read.column("response").cast(pa.large_string()))
            except DataError:
                parts.append(pa.chunked_array([pa.nulls(len(part), pa.large_string())]))
        chunks = [chunk for part in parts for chunk in part.chunks]
        return pa.chunked_array(chunks, pa.large_string()).take(pa.array(np.argsort(order)))

    def sample(self, run: Run, key: str) -> tuple[Row, Row]:
        """Return a sample as in lists, and its whole row.

        Raises:
            LookupError: there is none.
            DataError: its row cannot be read any more.
        """
        found = self._page("run = ? AND key = ?", [run.id, key], Filter(limit=1))
        if not found:
            raise LookupError(f"run {run.id} has no sample {_shown(key)}")
        return found[0], self.wholes(run, [key])[key]

    def wholes(self, run: Run, keys: Sequence[str]) -> dict[str, Row]:
        """Return the whole rows of samples by their keys, text and all, each with its identity.

        Raises:
            DataError: one cannot be read any more.
        """
        places = self.rows(
            'SELECT key, writer, "row", identity FROM samples'
            ' WHERE run = ? AND key IN (SELECT unnest(?)) ORDER BY writer, "row"',
            [run.id, list(keys)],
        )
        found: dict[str, Row] = {}
        for number, of_writer in itertools.groupby(places, lambda place: int(place["writer"])):
            here = list(of_writer)
            run_id, writer = self._store.writers[number]
            source = self._store.runs[run_id].source
            wholes = source.rows_at(writer, [place["row"] for place in here], WHOLE.names)
            for place, whole in zip(here, wholes.to_pylist(), strict=True):
                found[place["key"]] = whole | {"identity": self.identity(place["identity"])}
        return found

    def problem(self, problem_id: str) -> Row:
        """Return text, ground truth and source of a problem; nothing if it is not known."""
        found = self.rows("SELECT * FROM problems WHERE problem = ? LIMIT 1", [problem_id])
        return found[0] if found else {}

    def remembered(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """Return a result of this revision, made once."""
        return self._store.remembered(self.revision, key, make)


def _finite(table: pa.Table) -> pa.Table:
    """Return the rows with null in place of NaN and infinities, which JSON cannot hold."""
    for at, named in enumerate(table.schema):
        if pa.types.is_floating(named.type):
            column = table.column(at)
            known = pc.if_else(pc.is_finite(column), column, pa.scalar(None, named.type))
            table = table.set_column(at, named, known)
    return table


def _hex(column: pa.ChunkedArray) -> pa.Array:
    keys = b"".join(column.to_pylist())
    offsets = 2 * SAMPLE_KEY_BYTES * np.arange(len(column) + 1, dtype=np.int32)
    return pa.StringArray.from_buffers(
        len(column), pa.py_buffer(offsets), pa.py_buffer(keys.hex().encode())
    )


def _letters(column: pa.ChunkedArray) -> pa.Array:
    """Return the channels of each sample as a text, a letter a node: ``p``, ``s``, ``c``, ``-``."""
    lists = column.combine_chunks()
    names = lists.flatten()
    letters = pc.if_else(pc.equal(names, ""), "-", pc.utf8_slice_codeunits(names, 0, 1))
    sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), letters), "")
