"""The store: the light columns of all samples in DuckDB, and what is asked of them.

One database in a temporary file, with a bound on its memory; a thread fills it batch by batch, so
that there is something to see at once, and goes on while runs grow.  Which rows count is the
rule of :class:`~consensuspr.score_log.reader.LogReader`, and what curves mean that of
:class:`~consensuspr.score_log.curves.Curves`, which is filled beside; neither is said a second time
in SQL.  Texts stay in their writers: a sample has a place there.

What is asked together is asked of one :class:`Moment`: a transaction of the database and the runs
as they were when it began.  So counts, rows and rates of one document agree, whatever is read
beside.

A :class:`Filter` is what the page, its links and the API say of samples; its values reach DuckDB
as parameters alone, and its words are looked up here.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self, TypeAlias

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from consensuspr.console import one_line
from consensuspr.data.writers import arrow_array
from consensuspr.errors import DataError, InputError
from consensuspr.score_log.curves import CurvePoint, Curves
from consensuspr.scoring.types import SAMPLE_KEY_BYTES
from consensuspr.server.folders import temporary_folder
from consensuspr.web.sources import FOLDER_PREFIX, WHOLE, Source

# Of DuckDB; what does not fit goes to its temporary folder.
MEMORY: Final = "96MB"
THREADS: Final = 2
# Between two looks at runs that may grow.
POLL_S: Final = 1.0
# Rows that are put into the database together.
FILL_ROWS: Final = 8192
# A search for text goes on for so long at a time.
SEARCH_S: Final = 1.0
# Rows, and bytes of their texts, that are looked through between two looks at the clock.
SEARCH_ROWS: Final = 8192
SEARCH_BYTES: Final = 16 << 20
# Searches whose progress is kept, and what all of them together may have found: 12 bytes each.
MAX_SEARCHES: Final = 8
MAX_HITS: Final = 2_000_000
# Results that are kept until more samples come.
MAX_KEPT: Final = 16

MAX_LIMIT: Final = 500
MAX_OFFSET: Final = 10_000_000
MAX_VALUES: Final = 100
MAX_CHARS: Final = 1024

_log = logging.getLogger(__name__)

Row: TypeAlias = dict[str, Any]

_TABLE: Final = """
CREATE TABLE samples (
    run INTEGER, arrived BIGINT, key VARCHAR, writer INTEGER, "row" BIGINT, identity INTEGER,
    "time" DOUBLE, side VARCHAR, step BIGINT, epoch BIGINT, split VARCHAR, "group" VARCHAR,
    rollout_id VARCHAR, problem VARCHAR, source VARCHAR, model VARCHAR, diagnosis VARCHAR,
    status VARCHAR, reward DOUBLE, score DOUBLE, penalty DOUBLE, acc DOUBLE, ncr DOUBLE,
    ncr_raw DOUBLE, guard DOUBLE, num_nodes INTEGER, num_matched INTEGER, tpn DOUBLE,
    num_tokens BIGINT, response_size BIGINT, channels VARCHAR, answer VARCHAR,
    answer_method VARCHAR, message VARCHAR, scored_by VARCHAR)
"""
_PROBLEMS: Final = """
CREATE TABLE problems (problem VARCHAR, text VARCHAR, ground_truth VARCHAR, source VARCHAR)
"""
_INSERT: Final = """
INSERT INTO samples SELECT
    $run, arrived, key, writer, "row", identity, "time" / 1e6, side, step, epoch,
    nullif(split, ''), nullif(group_id, ''), rollout_id, problem_id, nullif(data_source, ''),
    nullif(model, ''), nullif(diagnosis, ''), status, reward,
    coalesce(final_score, reward), penalty, acc, ncr, ncr_raw, guard, num_nodes, num_matched,
    tpn, num_tokens, response_size,
    channels, left(answer, 200), answer_method, left(message, 500), scored_by
FROM batch
"""
# What rows of one value share, and what names the dataset among it.
IDENTITY: Final = (
    "dataset", "dataset_digest", "normal_form_version", "answer_version", "server_version",
    "scoring_version", "reward_spec", "answer_rule", "on_undecided",
)  # fmt: skip
# Of a sample in a list.
SHOWN: Final = (
    "run", "key", "identity", "time", "step", "epoch", "split", "group", "rollout_id", "problem",
    "source", "model", "diagnosis", "status", "reward", "score", "penalty", "acc", "ncr",
    "ncr_raw", "guard", "num_nodes", "num_matched", "tpn", "num_tokens", "response_size",
    "channels", "answer", "answer_method", "message", "scored_by",
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
# What curves are kept apart by.
LABELS: Final = ("split", "data_source", "model")
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
        q: text in the response, whatever the case of its letters.
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
    def of(cls, query: Iterable[tuple[str, str]], allowed: Sequence[str] = PARAMETERS) -> Self:
        """Return the filter that the parameters of an address say.

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
        one = {name: values[0] for name, values in given.items()}
        return cls(
            tuple(_whole("run", value, 0, MAX_OFFSET) for value in given.get("run", ())),
            {
                name: tuple(value or None for value in given[name])
                for name in _TEXTS
                if name in given
            },
            {column: _range(name, one[name]) for name, column in _RANGES.items() if one.get(name)},
            (),
            one.get("dataset") or None,
            _whole("node", one["node"], 0, MAX_OFFSET) if one.get("node") else None,
            _choice("verdict", one, VERDICTS),
            {None: None, "0": False, "1": True}[_choice("guarded", one, ("0", "1"))],
            _choice("kind", one, KINDS),
            one.get("q", ""),
            _choice("sort", one, SORTS),
            _choice("desc", one, ("0", "1")) != "0",
            _whole("offset", one.get("offset", "0"), 0, MAX_OFFSET),
            _whole("limit", one.get("limit", "50"), 1, MAX_LIMIT),
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


def _choice(name: str, given: Mapping[str, str], known: Iterable[str]) -> str | None:
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
        failed: why it cannot be read on; empty where it can.
        missing: number of rows that were read and could not be kept, because of a defect.
    """

    id: int
    source: Source
    curves: Curves = field(default_factory=lambda: Curves(LABELS))
    whole: bool = False
    rows: int = 0
    failed: str = ""
    missing: int = 0

    def left_out(self) -> list[str]:
        """Return sentences about what is not shown."""
        sentences = [*self.source.left_out(), *([self.failed] if self.failed else [])]
        if self.missing:
            sentences.append(f"{self.missing:,} rows are missing: a defect, which is logged")
        return sentences


@dataclass(slots=True)
class _Search:
    """A search for text within a filter, as far as it has come; newest samples first.

    Attributes:
        until: of samples that arrived earlier, it knows which are meant.
        left: places to be read with their sizes, the next ones at the end of the last table.
        hits: writers and rows of samples with the text.
        lost: samples without a text.
    """

    until: int = 0
    left: list[pa.Table] = field(default_factory=list)
    candidates: int = 0
    searched: int = 0
    hits: tuple[array[int], array[int]] = field(default_factory=lambda: (array("i"), array("q")))
    lost: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> tuple[int, npt.NDArray[np.int64]]:
        """Take the next places: a writer, and rows of it in order."""
        places = self.left.pop()
        writers, rows, sizes = (column.to_numpy() for column in places.columns)
        bytes_from_end = np.cumsum(sizes[: -SEARCH_ROWS - 1 : -1])
        most = max(1, int(np.searchsorted(bytes_from_end, SEARCH_BYTES, "right")))
        at = max(len(rows) - most, int(np.searchsorted(writers, writers[-1])))
        if at:
            self.left.append(places.slice(0, at))
        return int(writers[-1]), rows[at:]


class Store:
    """The samples of some runs.  Its methods may be called in any thread.

    Args:
        sources: of runs; closed with the store.
        memory: that DuckDB may take.

    Attributes:
        runs: as they are now, by their ids.
        assumed: digest of the dataset of samples that do not say by which they were scored.
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
        self._stack.callback(self._database.close)
        # What is in other files is no business of a query.
        self._database.execute("SET enable_external_access = false")
        self._database.execute("SET lock_configuration = true")
        self._database.execute(_TABLE)
        self._database.execute(_PROBLEMS)
        self.runs = [Run(at, source) for at, source in enumerate(sources)]
        # Of each number of a writer: its run and its name.
        self._writers: list[tuple[int, str]] = []
        self._writer_numbers: dict[tuple[int, str], int] = {}
        self._identities: dict[tuple[Any, ...], int] = {}
        self._searches: OrderedDict[tuple[Any, ...], _Search] = OrderedDict()
        # Held while texts are in memory, where they take the most room.
        self._texts = threading.Lock()
        self._kept: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._kept_of = -1  # the revision of what is kept
        self._lock = threading.Lock()
        # Held while samples are put in: rows, curves, runs and revision go together.
        self._changing = threading.Lock()
        self._revision = 0
        self._arrived = 0
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
            if run.failed or run.missing:
                raise InputError(f"{run.source.path}: {run.left_out()[-1]}")

    def close(self) -> None:
        """Stop reading and remove what was kept."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        for run in self.runs:
            run.source.close()
        self._stack.close()

    def changed(self) -> None:
        """Say that there is more to see."""
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
                moment = Moment(self, cursor, self._revision, self._arrived, runs)
            yield moment
        finally:
            cursor.close()

    def curves(self, wanted: Filter) -> tuple[int, list[tuple[Run, list[CurvePoint]]]]:
        """Return the revision, and the points of runs' curves at that moment.

        Args:
            wanted: runs, split, source, model and steps; what else it says does not count.

        Raises:
            LookupError: there is no such run.
        """
        with self._changing:
            runs = _chosen(self.runs, wanted.runs)
            return self._revision, [(replace(run), _points(run, wanted)) for run in runs]

    # Reading

    def _fill(self) -> None:
        while not self._closing.is_set():
            # In turns: of each run something is there soon.
            reading = [self._read(run) for run in self.runs if not run.whole or run.source.grows]
            while reading and not self._closing.is_set():
                reading = [one for one in reading if next(one, None) is not None]
            self._closing.wait(POLL_S)

    def _read(self, run: Run) -> Iterator[bool]:
        """Take what has come of a run, a part at a time."""
        before = (run.whole, run.left_out())
        failed = ""
        try:
            yield from self._take(run)
            if run.source.outdated:
                # What was done again is taken out by reading all of it once more.
                self._reset(run)
                yield from self._take(run)
            run.whole = True
        except (DataError, InputError, OSError) as error:
            failed = str(error)
        except Exception:
            # A thread that ends would leave all other runs as they are.
            _log.exception("reading %s failed", run.source.path)
            failed = "cannot be read: a defect, which is logged"
        if failed and not run.source.grows:  # it is read once, so that nothing comes any more
            run.whole = True
            failed += f"; all rows after the first {run.rows:,} are missing"
        run.failed = failed
        # What is kept of queries holds for as long as nothing comes.
        if (run.whole, run.left_out()) != before:
            self.changed()

    def _reset(self, run: Run) -> None:
        """Drop what was read of a run, to read it from its beginning."""
        cursor = self._database.cursor()
        with self._changing:
            cursor.execute("DELETE FROM samples WHERE run = ?", [run.id])
            run.source.close()
            run.source, run.curves = run.source.anew(), Curves(LABELS)
            run.rows, run.missing, run.whole = 0, 0, False
            self._revision += 1
        cursor.close()
        with self._lock:
            self._searches.clear()

    def _take(self, run: Run) -> Iterator[bool]:
        held: list[pa.RecordBatch] = []
        try:
            for batch in run.source.read():
                held.append(batch)
                if sum(one.num_rows for one in held) >= FILL_ROWS or not run.rows:
                    some, held = held, []
                    self._keep(run, some)
                    yield True
        except Exception:
            # A source yields its rows once.
            self._keep(run, held)
            raise
        if held:
            self._keep(run, held)
            yield True

    def _keep(self, run: Run, batches: Sequence[pa.RecordBatch]) -> None:
        if not batches:
            return
        try:
            self._insert(run, batches)
        except Exception:
            _log.exception("rows of %s could not be kept", run.source.path)
            run.missing += sum(batch.num_rows for batch in batches)

    def _insert(self, run: Run, batches: Sequence[pa.RecordBatch]) -> None:
        whole = _finite(pa.Table.from_batches(batches)).combine_chunks()
        first = self._arrived
        changed = {
            "key": _hex(whole.column("key")),
            "time": whole.column("time").cast(pa.int64()),
            "channels": _letters(whole.column("channels")),
            "writer": self._writers_of(run, whole.column("writer")),
        }
        batch = whole
        for name, column in changed.items():
            batch = batch.set_column(batch.schema.get_field_index(name), name, column)
        batch = batch.append_column("identity", self._identities_of(batch))
        batch = batch.append_column(
            "arrived", pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64))
        )
        cursor = self._database.cursor()
        cursor.register("batch", batch.drop_columns(list(IDENTITY)))
        with self._changing:
            cursor.execute(_INSERT, {"run": run.id})
            run.curves.add(whole.to_batches()[0])
            run.rows += batch.num_rows
            self._arrived += batch.num_rows
            self._revision += 1
        cursor.close()

    def _writers_of(self, run: Run, column: pa.ChunkedArray) -> pa.Array:
        def number(stem: str) -> int:
            key = (run.id, stem)
            if key not in self._writer_numbers:
                self._writers.append(key)
                self._writer_numbers[key] = len(self._writers) - 1
            return self._writer_numbers[key]

        encoded = column.combine_chunks().dictionary_encode()
        numbers = pa.array([number(stem) for stem in encoded.dictionary.to_pylist()], pa.int32())
        return numbers.take(encoded.indices)

    def _identities_of(self, batch: pa.Table) -> pa.Array:
        together = np.zeros(batch.num_rows, np.int64)
        columns = []
        for name in IDENTITY:
            encoded = batch.column(name).combine_chunks().dictionary_encode("encode")
            known = encoded.dictionary.to_pylist()
            at = encoded.indices.to_numpy()
            columns.append((at, known))
            together = together * len(known) + at
        _, firsts, rows = np.unique(together, return_index=True, return_inverse=True)
        numbers = []
        for first in firsts.tolist():
            identity = tuple(known[at[first]] for at, known in columns)
            numbers.append(self._identities.setdefault(identity, len(self._identities)))
        return pa.array(np.array(numbers, np.int32)[rows])

    def add_problems(self, rows: Iterable[tuple[str, str, str | None, str]]) -> None:
        """Keep texts, ground truths and sources of problems by their ids."""
        names = ("problem", "text", "ground_truth", "source")
        rows = iter(rows)
        while some := list(itertools.islice(rows, FILL_ROWS)):
            columns = [
                arrow_array(pa, [*column], pa.string()) for column in zip(*some, strict=True)
            ]
            cursor = self._database.cursor()
            cursor.register("batch", pa.table(columns, names=names))
            cursor.execute("INSERT INTO problems SELECT * FROM batch")
            cursor.close()

    # Searching texts

    def search(
        self, search: _Search, where: str, values: Sequence[Any], text: str, arrived: int
    ) -> tuple[Row, pa.Table]:
        """Go on with a search for a while; return how far it came, and the places that it found.

        What came since the last call is read before what is older.

        Args:
            search: of :meth:`search_of`.
            where, values: which samples, in SQL.
            text: that is looked for, whatever the case of its letters.
            arrived: only samples that had come before it are looked at.
        """
        with search.lock:
            # Another one who asks may have seen more than a moment's transaction shows.
            cursor = self._database.cursor()
            if arrived > search.until:
                come = _in_columns(
                    cursor,
                    'SELECT writer, "row", coalesce(response_size, 0) AS size FROM samples'
                    f' WHERE {where} AND arrived >= ? AND arrived < ? ORDER BY writer, "row"',
                    [*values, search.until, arrived],
                )
                search.left += [come] if come.num_rows else []
                search.candidates += come.num_rows
                search.until = arrived
            end = time.monotonic() + SEARCH_S
            while search.left and time.monotonic() < end:
                with self._texts:
                    self._search_some(search, text)
                    # The allocator keeps what is freed, several times what is held.
                    pa.default_memory_pool().release_unused()
            cursor.close()
            told = {
                "searched": search.searched,
                "candidates": search.candidates,
                "complete": not search.left,
                "without_text": search.lost,
            }
            places = [pa.array(np.array(column)) for column in search.hits]
        self._drop_searches()
        return told, pa.table(places, names=["writer", "row"])

    def search_of(self, where: str, values: Sequence[Any], text: str) -> _Search:
        """Return the search for a text in samples of some runs; begin it if it is new."""
        key = (where, repr(values), text.casefold())
        with self._lock:
            search = self._searches.setdefault(key, _Search())
            self._searches.move_to_end(key)
            return search

    def _drop_searches(self) -> None:
        """Let go of the searches that nobody has asked for longest, where there are too many."""
        with self._lock:
            found = sum(len(one.hits[0]) for one in self._searches.values())
            while len(self._searches) > 1 and (
                len(self._searches) > MAX_SEARCHES or found > MAX_HITS
            ):
                _, gone = self._searches.popitem(last=False)
                found -= len(gone.hits[0])

    def _search_some(self, search: _Search, text: str) -> None:
        writer, some = search.take()
        run, stem = self._writers[writer]
        source = self.runs[run].source
        search.searched += len(some)
        try:
            texts = source.rows_at(stem, some.tolist(), ["response"]).column("response")
        except DataError:
            search.lost += len(some)
            return
        search.lost += texts.null_count
        found = pc.fill_null(pc.match_substring(texts, text, ignore_case=True), False)
        hits = some[found.to_numpy()]
        search.hits[0].extend([writer] * len(hits))
        search.hits[1].extend(hits.tolist())


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
        arrived: int,
        runs: Sequence[Run],
    ) -> None:
        self.revision = revision
        self.runs = runs
        self._store = store
        self._cursor = cursor
        self._arrived = arrived
        # The last search; it goes on even after the store has dropped it for newer ones.
        self._search: tuple[Filter, _Search] | None = None

    def rows(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
        """Return the rows of a query as dictionaries."""
        found = self._cursor.execute(sql, values)
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def table(self, sql: str, values: Sequence[Any]) -> pa.Table:
        """Return the rows of a query in columns, which take a tenth of the memory."""
        return _in_columns(self._cursor, sql, values)

    def run(self, number: int) -> Run:
        """Return a run by its id.

        Raises:
            LookupError: there is none.
        """
        return _chosen(self.runs, [number])[0]

    def identity(self, number: int) -> Row:
        """Return what some samples were scored under."""
        found = next(one for one, at in list(self._store._identities.items()) if at == number)
        return dict(zip(IDENTITY, found, strict=True))

    def dataset_of(self, identity: int) -> str | None:
        """Return the digest of the dataset that scored some samples, or that is assumed to have."""
        digest: str | None = self.identity(identity)["dataset_digest"]
        return self._store.assumed if digest is None else digest

    def scored_by(self, digest: str) -> list[int]:
        """Return the identities of samples that a dataset scored."""
        numbers = list(self._store._identities.values())
        return [number for number in numbers if self.dataset_of(number) == digest]

    def condition(self, wanted: Filter) -> tuple[str, list[Any]]:
        """Return the condition in SQL of a filter, the text aside, and its values.

        Raises:
            LookupError: there is no such run.
        """
        numbers = [run.id for run in _chosen(self.runs, wanted.runs)]
        return wanted.where(numbers, self.scored_by)

    def samples(self, wanted: Filter) -> tuple[int, list[Row], Row | None]:
        """Return how many samples there are, a page of them, and how far a search for text came."""
        where, values = self.condition(wanted)
        if not wanted.q:
            total = self.remembered(
                ("count", where, repr(values)), lambda: self._count(where, values)
            )
            return total, self._page(where, values, wanted), None
        told, hits = self.search(wanted)
        with self._among(where, hits) as found:
            return self._count(found, values), self._page(found, values, wanted), told

    def search(self, wanted: Filter) -> tuple[Row, pa.Table]:
        """Go on with the search of a filter; return how far it came, and the places it found."""
        where, values = self.condition(wanted)
        if self._search is None or self._search[0] != wanted:
            search = self._store.search_of(where, values, wanted.q)
            self._search = wanted, search
        return self._store.search(self._search[1], where, values, wanted.q, self._arrived)

    def page(self, wanted: Filter, hits: pa.Table | None) -> list[Row]:
        """Return a page of samples; ``hits`` are what a search for its text has found."""
        where, values = self.condition(wanted)
        with self._among(where, hits) as found:
            return self._page(found, values, wanted)

    @contextmanager
    def _among(self, where: str, hits: pa.Table | None) -> Iterator[str]:
        """Yield the condition, limited to the places of ``hits`` unless that is None."""
        if hits is None:
            yield where
            return
        self._cursor.register("hits", hits)
        try:
            yield f'{where} AND (writer, "row") IN (SELECT (writer, "row") FROM hits)'
        finally:
            self._cursor.unregister("hits")

    def _count(self, where: str, values: Sequence[Any]) -> int:
        total: int = self.rows(f"SELECT count(*) AS n FROM samples WHERE {where}", values)[0]["n"]
        return total

    def _page(self, where: str, values: Sequence[Any], wanted: Filter) -> list[Row]:
        shown = ", ".join(f'"{name}"' for name in SHOWN)
        flags = ", ".join(f"{rule} AS flag_{name}" for name, rule in FLAGS.items())
        # What decides the order is sorted alone: a row is ten times as wide.
        found = self.rows(
            f"SELECT {shown}, {flags} FROM samples WHERE rowid IN (SELECT rowid FROM samples"
            f" WHERE {where} ORDER BY {wanted.order} LIMIT ? OFFSET ?) ORDER BY {wanted.order}",
            [*values, wanted.limit, wanted.offset],
        )
        return [_with_flags(row) for row in found]

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
        for writer, some in itertools.groupby(places, lambda place: int(place["writer"])):
            number, stem = self._store._writers[writer]
            source = self._store.runs[number].source
            here = list(some)
            wholes = source.rows_at(stem, [place["row"] for place in here], WHOLE.names)
            for place, whole in zip(here, wholes.to_pylist(), strict=True):
                found[place["key"]] = whole | {"identity": self.identity(place["identity"])}
        return found

    def problem(self, problem_id: str) -> Row:
        """Return what is kept of a problem; nothing where it is not known."""
        found = self.rows("SELECT * FROM problems WHERE problem = ? LIMIT 1", [problem_id])
        return found[0] if found else {}

    def remembered(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """Return what was made of the samples as they are at this revision, made once."""
        store = self._store
        with store._lock:
            if self.revision > store._kept_of:
                store._kept.clear()
                store._kept_of = self.revision
            if self.revision == store._kept_of and key in store._kept:
                store._kept.move_to_end(key)
                return store._kept[key]
        made = make()
        with store._lock:
            if self.revision == store._kept_of:
                store._kept[key] = made
                while len(store._kept) > MAX_KEPT:
                    store._kept.popitem(last=False)
        return made


def _chosen(runs: Sequence[Run], ids: Sequence[int]) -> list[Run]:
    """Return the runs of some ids, all where there are none.

    Raises:
        LookupError: there is no such run.
    """
    for number in ids:
        if not 0 <= number < len(runs):
            raise LookupError(f"there is no run {number}; there are 0 to {len(runs) - 1}")
    return [runs[number] for number in ids] if ids else list(runs)


def _points(run: Run, wanted: Filter) -> list[CurvePoint]:
    labels = {"split": "split", "source": "data_source", "model": "model"}
    chosen = {labels[name]: values for name, values in wanted.texts.items() if name in labels}
    points = run.curves.points(chosen)
    if "step" in wanted.ranges:
        low, high = wanted.ranges["step"]
        points = [one for one in points if low <= (one.last_step or 0) <= high]
    return points


def _in_columns(cursor: duckdb.DuckDBPyConnection, sql: str, values: Sequence[Any]) -> pa.Table:
    return cursor.sql(sql, params=list(values)).to_arrow_table()


def _with_flags(row: Row) -> Row:
    flags = [name for name in FLAGS if row.pop(f"flag_{name}")]
    return row | {"flags": flags}


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
