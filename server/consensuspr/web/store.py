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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Self, TypeAlias

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from consensuspr.console import one_line
from consensuspr.data.writers import arrow_array
from consensuspr.errors import DataError, InputError
from consensuspr.server.folders import temporary_folder
from consensuspr.web.sources import FOLDER_PREFIX, WHOLE, Source, name_apart

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

BEGINNING_CHARS: Final = 300  # of a problem in a list: more than fit, so no cut formula is seen
MAX_LIMIT: Final = 500
MAX_OFFSET: Final = 10_000_000
MAX_VALUES: Final = 100
MAX_CHARS: Final = 1024

_log = logging.getLogger(__name__)

Row: TypeAlias = dict[str, Any]
Query: TypeAlias = Sequence[tuple[str, str]]
# In SQL, and the values of its parameters.
Condition: TypeAlias = tuple[str, tuple[Any, ...]]

# Of a sample in a list: its type, and the SQL that takes it from a batch if that is not its name.
_TEXT, _WHOLE, _FLOAT = "VARCHAR", "BIGINT", "DOUBLE"
_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "run": ("INTEGER", "$run"), "key": (_TEXT, "lower(hex(key))"),
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
    "dataset": (_TEXT, "dataset_digest"),
}  # fmt: skip
SHOWN: Final = tuple(_COLUMNS)
# Besides: where the whole sample is, its reward formula as JSON, and the name of its dataset.
_ALL: Final = _COLUMNS | {
    "writer": (_TEXT,), "row": (_WHOLE,), "formula": (_TEXT, "reward_spec"),
    "dataset_name": (_TEXT, "batch.dataset"),
}  # fmt: skip
_TYPES: Final = ", ".join(f'"{name}" {column[0]}' for name, column in _ALL.items())
_TABLES: Final = (
    f"CREATE TABLE samples ({_TYPES});"
    "CREATE TABLE problems (problem VARCHAR, text VARCHAR, ground_truth VARCHAR, source VARCHAR)"
)
_INSERT: Final = (
    "INSERT INTO samples SELECT "
    + ", ".join(column[1] if len(column) > 1 else f'"{name}"' for name, column in _ALL.items())
    + " FROM batch"
)
_INSERT_PROBLEMS: Final = """
INSERT INTO problems SELECT problem_id, any_value(problem), NULL, any_value(data_source) FROM batch
WHERE problem IS NOT NULL AND problem_id NOT IN (SELECT problem FROM problems) GROUP BY problem_id
"""
# Why one would look at a sample, by name; the rules of `kind`.
FLAGS: Final = {
    "guarded": "coalesce(guard < 1, false)",
    "wrong_all": "coalesce(acc = 0 AND num_nodes > 0 AND num_matched = num_nodes, false)",
    "right_none": "coalesce(acc = 1 AND num_nodes > 0 AND num_matched = 0, false)",
    "failed": "status <> 'OK'",
}
KINDS: Final = {
    "suspicious": f"({FLAGS['guarded']} OR {FLAGS['wrong_all']} OR {FLAGS['right_none']})",
    **FLAGS,
}
VERDICTS: Final = {"right": "acc = 1", "wrong": "acc = 0", "unknown": "acc IS NULL"}
# How many of the nodes a sample reaches, by name, in ascending order.
REACHED: Final = {
    "none": "num_nodes > 0 AND num_matched = 0",
    "some": "num_matched > 0 AND 2 * num_matched < num_nodes",
    "half": "2 * num_matched >= num_nodes AND num_matched < num_nodes",
    "all": "num_nodes > 0 AND num_matched = num_nodes",
}
# Columns that a list may be sorted by: all that are shown and have an order.
SORTS: Final = tuple(
    name for name in SHOWN if name not in ("run", "key", "dataset", "message", "channels")
)
_NEWEST: Final = 'step DESC NULLS LAST, "time" DESC NULLS LAST, writer DESC, "row" DESC'
# Texts that are compared as they are; "" stands for those that have none.
_TEXTS: Final = (
    "split", "source", "model", "diagnosis", "status", "problem", "group", "formula",
)  # fmt: skip
_RANGES: Final = {
    "step": "step", "ncr": "ncr", "reward": "score", "tokens": "num_tokens", "guard": "guard",
}  # fmt: skip
PARAMETERS: Final = (
    "run", *_TEXTS, *_RANGES, "dataset", "node", "verdict", "reached", "kind", "q", "sort", "desc",
    "offset", "limit",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Filter:
    """Which samples, in which order, and which page of them.

    Attributes:
        runs: ids; none: all.
        dataset: digest of the dataset that scored; None: any.
        conditions: all of them hold.
        q: text in the response, whatever the case of its letters; goes with no sort.
        sort: one of :data:`SORTS`; None: the newest first.
    """

    runs: tuple[int, ...] = ()
    dataset: str | None = None
    conditions: tuple[Condition, ...] = ()
    q: str = ""
    sort: str | None = None
    desc: bool = True
    offset: int = 0
    limit: int = 50

    @classmethod
    def of(cls, query: Query, allowed: Sequence[str] = PARAMETERS) -> Self:
        """Return the filter of the parameters of an address.

        Raises:
            InputError: names the parameter, its value and its limit.
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
        conditions: list[Condition] = []
        for name, values in given.items():
            limit = MAX_VALUES if name in _TEXTS or name == "run" else 1
            if len(values) > limit:
                raise InputError(f"{name} is given {len(values)} times, the limit is {limit}")
            if name in _TEXTS:
                known = [value for value in values if value]
                unknown = f' OR "{name}" IS NULL' if "" in values else ""
                conditions.append((f'("{name}" IN (SELECT unnest(?)){unknown})', (known,)))
            elif name in _RANGES and values[0]:
                ends = _range(name, values[0])
                conditions.append((f'"{_RANGES[name]}" BETWEEN ? AND ?', ends))
        single = {name: values[0] for name, values in given.items()}
        if single.get("node"):
            node = _whole("node", single["node"], 0, MAX_OFFSET)
            reached = "coalesce(substr(channels, ? + 1, 1) NOT IN ('', '-'), false)"
            conditions.append((reached, (node,)))
        for name, rules in (("verdict", VERDICTS), ("reached", REACHED), ("kind", KINDS)):
            if chosen := choice(name, single, rules):
                conditions.append((rules[chosen], ()))
        if single.get("q") and single.get("sort"):
            raise InputError("sort does not go with q: texts are searched from the newest on")
        return cls(
            runs=tuple(_whole("run", value, 0, MAX_OFFSET) for value in given.get("run", ())),
            dataset=single.get("dataset") or None,
            conditions=tuple(conditions),
            q=single.get("q", ""),
            sort=choice("sort", single, SORTS),
            desc=choice("desc", single, ("0", "1")) != "0",
            offset=_whole("offset", single.get("offset", "0"), 0, MAX_OFFSET),
            limit=_whole("limit", single.get("limit", "50"), 1, MAX_LIMIT),
        )

    def equal(self, values: Row) -> Self:
        """Return the filter of samples that also have these values; None: an unknown one."""
        conditions = [
            (f'"{name}" IS NULL', ()) if value is None else (f'"{name}" = ?', (value,))
            for name, value in values.items()
        ]
        return replace(self, conditions=(*self.conditions, *conditions))

    @property
    def order(self) -> str:
        """The order in SQL; ties by the newest."""
        if self.sort is None:
            return _NEWEST if self.desc else _NEWEST.replace("DESC", "ASC")
        return f'"{self.sort}" {"DESC" if self.desc else "ASC"} NULLS LAST, {_NEWEST}'


def _shown(value: str) -> str:
    return repr(one_line(value, 60))


def choice(name: str, given: dict[str, str], known: Iterable[str]) -> str | None:
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
        rows: number of its samples.
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

    Attributes:
        runs: as they are now, by their ids.
        assumed: digest of the dataset of samples whose dataset is not known.
        texts: held while many texts are in memory.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self.assumed: str | None = None
        self._stack = ExitStack()
        folder = temporary_folder(FOLDER_PREFIX, self._stack)
        self._database = duckdb.connect(
            str(folder / "samples.duckdb"),
            config={
                "memory_limit": MEMORY,
                "threads": THREADS,
                "temp_directory": str(folder / "spilled"),
                "preserve_insertion_order": False,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            },
        )
        name_apart(sources)
        self.runs = [Run(at, source) for at, source in enumerate(sources)]
        self.texts = threading.Lock()
        self._keeping = threading.Lock()
        self._kept: dict[tuple[Any, ...], Any] = {}
        self._kept_of = -1  # the revision of the kept results
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
        """Stop reading and remove the database."""
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
        """Open a moment until the block is left."""
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
                self._kept[key] = made
                if len(self._kept) > MAX_KEPT:
                    del self._kept[next(iter(self._kept))]
        return made

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
        """Take the new rows of a run, a batch at a time."""
        before = (run.whole, run.left_out())
        failed = ""
        try:
            for batch in run.source.read():
                self._withdraw(run)
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
                cursor.execute(
                    'DELETE FROM samples WHERE run = ? AND writer = ? AND "row" IN'
                    " (SELECT unnest(?))",
                    [run.id, writer, rows.tolist()],
                )
                run.rows -= len(rows)
                self._revision += 1

    def _insert(self, run: Run, batch: pa.RecordBatch) -> None:
        columns = {name: _finite(batch.column(name)) for name in batch.schema.names}
        columns["time"] = columns["time"].cast(pa.int64())
        columns["channels"] = _letters(columns["channels"])
        with self._changing, self._database.cursor() as cursor:
            cursor.register("batch", pa.table(columns))
            cursor.execute(_INSERT, {"run": run.id})
            if columns["problem"].null_count < batch.num_rows:
                cursor.execute(_INSERT_PROBLEMS)
            run.rows += batch.num_rows
            self._revision += 1

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
    """The samples of one moment, whatever comes meanwhile.  For one thread at a time.

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
        """Return the rows of a query in columns, which take a tenth of the memory.

        It is made once in a revision.
        """
        return self.remembered(
            (sql, repr(values)),
            lambda: self._cursor.sql(sql, params=list(values)).to_arrow_table(),
        )

    def run(self, number: int) -> Run:
        """Return a run by its id.

        Raises:
            LookupError: there is none.
        """
        if not 0 <= number < len(self.runs):
            raise LookupError(f"there is no run {number}; there are 0 to {len(self.runs) - 1}")
        return self.runs[number]

    def dataset_of(self, row: Row) -> str | None:
        """Return the digest of the dataset that scored a sample, or that is assumed to have."""
        digest: str | None = row["dataset"]
        return self._store.assumed if digest is None else digest

    def where(self, wanted: Filter) -> tuple[str, list[Any]]:
        """Return the condition in SQL of a filter, the text aside, and its values.

        Raises:
            LookupError: there is no such run.
        """
        numbers = [self.run(number).id for number in wanted.runs or range(len(self.runs))]
        conditions: list[Condition] = [("run IN (SELECT unnest(?))", (numbers,))]
        conditions += wanted.conditions
        if wanted.dataset is not None:
            assumed = " OR dataset IS NULL" if wanted.dataset == self._store.assumed else ""
            conditions.append((f"(dataset = ?{assumed})", (wanted.dataset,)))
        values = [value for _, of_condition in conditions for value in of_condition]
        return " AND ".join(sql for sql, _ in conditions), values

    def count(self, wanted: Filter) -> int:
        """Return how many samples there are, the text aside."""
        where, values = self.where(wanted)
        found = self.table(f"SELECT count(*) FROM samples WHERE {where}", values)
        total: int = found.column(0)[0].as_py()
        return total

    def page(self, wanted: Filter) -> list[Row]:
        """Return a page of samples, the text aside."""
        where, values = self.where(wanted)
        return self._page(where, values, wanted)

    def _page(self, where: str, values: Sequence[Any], wanted: Filter) -> list[Row]:
        shown = ", ".join(f'"{name}"' for name in SHOWN)
        flags = ", ".join(f"{rule} AS flag_{name}" for name, rule in FLAGS.items())
        # The columns of the order are sorted alone: a row is ten times as wide.
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
        where, values = self.where(wanted)
        sql = (
            'SELECT rowid, run, writer, "row", coalesce(response_size, 0) AS size FROM samples'
            f" WHERE {where} ORDER BY {wanted.order} LIMIT {SEARCH_ROWS} OFFSET {wanted.offset}"
        )
        places = self._cursor.sql(sql, params=values).to_arrow_table()
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
                # The allocator keeps freed memory, several times the size of the texts.
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
        places = places.append_column("at", pa.array(range(places.num_rows)))
        places = places.sort_by([(name, "ascending") for name in ("run", "writer", "row")])
        texts: list[pa.Array] = []
        for (number, writer), some in itertools.groupby(
            places.select(["run", "writer", "row"]).to_pylist(),
            lambda place: (place["run"], place["writer"]),
        ):
            rows = [place["row"] for place in some]
            try:
                read = self.runs[number].source.rows_at(writer, rows, ["response"])
                texts += read.column("response").cast(pa.large_string()).chunks
            except DataError:
                texts.append(pa.nulls(len(rows), pa.large_string()))
        return pa.chunked_array(texts, pa.large_string()).take(pc.sort_indices(places.column("at")))

    def sample(self, run: Run, key: str) -> tuple[Row, Row]:
        """Return a sample as in lists, and its whole row.

        Raises:
            LookupError: there is none.
            DataError: its row cannot be read any more.
        """
        found = self.page(Filter((run.id,), limit=1).equal({"key": key}))
        if not found:
            raise LookupError(f"run {run.id} has no sample {_shown(key)}")
        return found[0], self.wholes(run, [key])[key]

    def wholes(self, run: Run, keys: Sequence[str]) -> dict[str, Row]:
        """Return the whole rows of samples by their keys, text and all.

        Raises:
            DataError: one cannot be read any more.
        """
        places = self.rows(
            'SELECT key, writer, "row" FROM samples'
            ' WHERE run = ? AND key IN (SELECT unnest(?)) ORDER BY writer, "row"',
            [run.id, list(keys)],
        )
        found: dict[str, Row] = {}
        for writer, of_writer in itertools.groupby(places, lambda place: str(place["writer"])):
            here = list(of_writer)
            read = run.source.rows_at(writer, [place["row"] for place in here], WHOLE.names)
            for place, whole in zip(here, read.to_pylist(), strict=True):
                found[place["key"]] = dict.fromkeys(WHOLE.names) | whole
        return found

    def named(self, table: pa.Table, text: str) -> pa.Table:
        """Return the rows whose problem has a text in its id or in its own text.

        Args:
            table: with a column ``problem``, the ids.
            text: whatever the case of its letters; empty: all rows.
        """
        if not text:
            return table
        found = self._cursor.execute(
            "SELECT problem FROM problems WHERE contains(lower(text), lower(?))", [text]
        )
        ids = table.column("problem").cast(pa.string())
        with_text = pc.is_in(ids, pa.array([row[0] for row in found.fetchall()], pa.string()))
        return table.filter(pc.or_(pc.match_substring(ids, text, ignore_case=True), with_text))

    def beginnings(self, problem_ids: Sequence[str]) -> dict[str, str]:
        """Return the first characters of the texts of problems, by their ids."""
        sql = (
            f"SELECT problem, left(text, {BEGINNING_CHARS}) AS text FROM problems"
            " WHERE problem IN (SELECT unnest(?)) AND text <> ''"
        )
        return {row["problem"]: row["text"] for row in self.rows(sql, [list(problem_ids)])}

    def problem(self, problem_id: str) -> Row:
        """Return text, ground truth and source of a problem; nothing if it is not known."""
        found = self.rows("SELECT * FROM problems WHERE problem = ? LIMIT 1", [problem_id])
        return found[0] if found else {}

    def remembered(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """Return a result of this revision, made once."""
        return self._store.remembered(self.revision, key, make)


def _finite(column: pa.Array) -> pa.Array:
    """Return a column with null in place of NaN and infinities, which JSON cannot hold."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))


def _letters(lists: pa.Array) -> pa.Array:
    """Return the channels of each sample as a text, a letter a node: ``p s c e -``."""
    names = lists.flatten()
    letters = pc.if_else(pc.equal(names, ""), "-", pc.utf8_slice_codeunits(names, 0, 1))
    sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), letters), "")
