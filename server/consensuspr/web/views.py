"""The documents that the page shows, as plain JSON values.

:meth:`Documents.answer` makes each of them from a path and its parameters, for the live page and
for a page to keep.  A value that is not known is None, never 0.  Nodes count from 0.  The code that
scored a sample explains it again, with the dataset that the run keeps or that was given.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from consensuspr.console import one_line
from consensuspr.data import Node, open_writer, read_problem_rows
from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.score_log.replay import Datasets, Unscored, options_of, rollout_of
from consensuspr.score_log.schema import read_reward
from consensuspr.scoring import AnswerVerifier, DatasetIndex, Scorer
from consensuspr.scoring.marks import Mark, cut_at_marks, parts_to_show
from consensuspr.scoring.rewards import RewardSpec
from consensuspr.scoring.types import Explanation, NodeExplanation, ScoreOptions, Status
from consensuspr.web.figures import PageReport, document
from consensuspr.web.sources import OTHER, LogSource
from consensuspr.web.store import (
    KINDS,
    MAX_CHARS,
    MAX_OFFSET,
    PARAMETERS,
    VERDICTS,
    Filter,
    Moment,
    Query,
    Row,
    Run,
    Store,
    choice,
)

Document: TypeAlias = dict[str, Any]

MAX_POINTS: Final = 400  # of a curve; neighbouring steps of a longer one are one point
MAX_HISTORY: Final = 60  # points of a problem's history
MAX_NAMES: Final = 200  # different splits, sources and models that are offered
MAX_GROUP: Final = 256
MAX_NEIGHBOURS: Final = 64  # of a sample, in its group
MAX_SIDES: Final = 6  # runs or models that a page to keep compares with each other
# Of a response; of a longer one its beginning, its end and what is around each hit.
WHOLE_CHARS: Final = 100_000
MAX_DROPPED: Final = 100_000  # nodes that one review may drop
# For a dataset that is being read when all ends; a large one may take minutes.
CLOSE_S: Final = 5.0
# Rewards nearer than this are the same to a trainer, which compares them in single precision.
_EQUAL: Final = 1e-6
# Of the differences in Acc: no change, and as many equal parts on each side of it.
CHANGE_PARTS: Final = 4

PROBLEM_SORTS: Final = (
    "problem", "source", "samples", "acc", "ncr", "ncr_right", "ncr_wrong", "reward", "first_acc",
    "last_acc", "change",
)  # fmt: skip
# What two sides may be compared by, and how that may be sorted.
COMPARED_BY: Final = ("problem", "step")
COMPARED_SORTS: Final = (
    "problem", "step", "acc", "ncr", "reward", "a_acc", "b_acc", "a_ncr", "b_ncr", "a_reward",
    "b_reward", "a_samples", "b_samples",
)  # fmt: skip
# What has one value in a group of samples; of a group with an id, the problem need not.
_GROUP: Final = ("step", "split", "model", "group", "problem")
# Parameters of samples, without some.
_PAGE: Final = ("desc", "offset", "limit")
_CHOSEN: Final = tuple(name for name in PARAMETERS if name not in ("sort", "q"))

# The figures of a curve: means over the samples whose value is known, as score_log.curves has them.
_CURVE: Final = {
    "samples": "count(*)",
    "reward": "avg(score)",
    "acc": "avg(acc)",
    "ncr": "avg(ncr)",
    "ncr_of_wrong": "avg(ncr) FILTER (acc = 0)",
    "reward_from_wrong": "coalesce(sum(score) FILTER (acc = 0), 0) / nullif(count(score), 0)",
    "tpn": "avg(tpn)",
    "num_tokens": "avg(num_tokens)",
    "ncr_raw": "avg(ncr_raw)",
    "guarded": "avg((guard < 1)::INTEGER)",
    "statuses": "histogram(status)",
}
_CURVES: Final = f"""
WITH chosen AS (SELECT * FROM samples WHERE {{where}}),
steps AS (
    SELECT run, step, row_number() OVER (PARTITION BY run ORDER BY step) - 1 AS place,
        count(*) OVER (PARTITION BY run) AS number
    FROM (SELECT DISTINCT run, step FROM chosen WHERE step IS NOT NULL))
SELECT chosen.run AS run, min(chosen.step) AS first, max(chosen.step) AS x,
    {", ".join(f"{sql} AS {name}" for name, sql in _CURVE.items())}
FROM chosen LEFT JOIN steps ON chosen.run = steps.run AND chosen.step = steps.step
GROUP BY chosen.run, place // ceil(number / {MAX_POINTS}) ORDER BY x
"""
_RUN: Final = """
SELECT count(*) AS samples, min(step) AS first, max(step) AS last,
    count(DISTINCT problem) AS problems, max("time") AS "time", histogram(status) AS statuses
FROM samples WHERE run = ?
"""
_PROBLEMS: Final = """
WITH chosen AS (SELECT * FROM samples WHERE {where}),
steps AS (SELECT problem, step, avg(acc) AS acc FROM chosen GROUP BY problem, step),
ends AS (SELECT problem, arg_min(acc, step) AS first_acc, arg_max(acc, step) AS last_acc
         FROM steps GROUP BY problem)
SELECT problem, any_value(source) AS source, count(*) AS samples, avg(acc) AS acc, avg(ncr) AS ncr,
    avg(ncr) FILTER (acc = 1) AS ncr_right, avg(ncr) FILTER (acc = 0) AS ncr_wrong,
    avg(score) AS reward, any_value(first_acc) AS first_acc, any_value(last_acc) AS last_acc,
    any_value(last_acc) - any_value(first_acc) AS change
FROM chosen JOIN ends USING (problem) GROUP BY problem
"""
_SIDE: Final = """
SELECT count(*) AS samples, count(DISTINCT problem) AS problems, avg(acc) AS acc, avg(ncr) AS ncr,
    avg(ncr) FILTER (acc = 0) AS ncr_wrong, avg(score) AS reward,
    avg((guard < 1)::INTEGER) AS guarded, avg(num_tokens) AS tokens,
    list(DISTINCT identity) AS datasets
FROM samples WHERE {where}
"""
_COMPARED: Final = """
WITH a AS (SELECT problem, {step} AS step, count(*) AS samples, avg(acc) AS acc, avg(ncr) AS ncr,
    avg(score) AS reward FROM samples WHERE {a} GROUP BY 1, 2),
b AS (SELECT problem, {step} AS step, count(*) AS samples, avg(acc) AS acc, avg(ncr) AS ncr,
    avg(score) AS reward FROM samples WHERE {b} GROUP BY 1, 2)
SELECT coalesce(a.problem, b.problem) AS problem, coalesce(a.step, b.step) AS step,
    a.samples AS a_samples, a.acc AS a_acc, a.ncr AS a_ncr, a.reward AS a_reward,
    b.samples AS b_samples, b.acc AS b_acc, b.ncr AS b_ncr, b.reward AS b_reward,
    b.acc - a.acc AS acc, b.ncr - a.ncr AS ncr, b.reward - a.reward AS reward
FROM a FULL JOIN b ON a.problem = b.problem{same}
"""
# Problems by the node that wrong samples reach most often, as against right ones.
_GAPS: Final = """
WITH counts AS (
    SELECT problem, acc, channels, count(*) AS n FROM samples
    WHERE {where} AND acc IS NOT NULL AND channels <> '' GROUP BY ALL),
nodes AS (
    SELECT problem, acc, n, unnest(range(length(channels))) AS node, channels FROM counts),
rates AS (
    SELECT problem, node,
        sum(n) FILTER (acc = 0 AND substr(channels, node + 1, 1) <> '-')
            / sum(n) FILTER (acc = 0) AS wrong,
        sum(n) FILTER (acc = 1 AND substr(channels, node + 1, 1) <> '-')
            / sum(n) FILTER (acc = 1) AS "right"
    FROM nodes GROUP BY problem, node)
SELECT problem, max(coalesce(wrong, 0) - coalesce("right", 0)) AS gap FROM rates
GROUP BY problem ORDER BY gap DESC, problem
"""


class Views:
    """Makes documents of a store and of datasets.  Thread-safe.

    Args:
        store: the samples.
        datasets: files of datasets, for texts of problems, and for runs that keep none.

    Attributes:
        given: files of datasets by their digests.
    """

    def __init__(self, store: Store, datasets: Sequence[Path] = ()) -> None:
        self._store = store
        self._faults = dict.fromkeys(datasets, "")
        folders = [run.source.run for run in store.runs if isinstance(run.source, LogSource)]
        self._datasets = Datasets(folders)
        self.given: dict[str, Path] = {}
        self._lock = threading.Lock()
        self._scoring = threading.Lock()
        self._verifier = AnswerVerifier()
        self._loading = threading.Thread(target=self._load, name="watch-datasets", daemon=True)
        self._loading.start()

    @contextmanager
    def now(self) -> Iterator[Documents]:
        """Give the documents of this moment, until the block is left."""
        with self._store.moment() as moment:
            yield Documents(self, moment)

    def wait(self) -> None:
        """Wait until the given datasets are read.

        Raises:
            InputError: one cannot be.
        """
        self._loading.join()
        for sentence in self.left_out():
            raise InputError(sentence)

    def close(self) -> None:
        """End what compares answers, and what reads datasets if that is soon done."""
        self._verifier.close()
        self._loading.join(CLOSE_S)

    @property
    def loading(self) -> bool:
        """Whether given datasets are still being read."""
        return self._loading.is_alive()

    def left_out(self) -> list[str]:
        """Return sentences about given datasets that cannot be read."""
        return [f"{path}: {fault}" for path, fault in self._faults.items() if fault]

    def index(self, digest: str | None) -> DatasetIndex | Unscored:
        """Return the dataset of a digest; if none is known, one that was given."""
        with self._lock:
            if digest is None:
                digest = next(iter(self.given), None)
            return Unscored.NO_DATASET if digest is None else self._datasets.of(digest)

    def explain(self, row: Row, identity: Row) -> Explanation | str:
        """Score a row again and explain its score, or return why that cannot be done."""
        index = self.index(identity["dataset_digest"])
        rollout = rollout_of(row | {"response_raw": row.get("response_raw")})
        if rollout is None:
            return Unscored.NO_TEXT.value
        if isinstance(index, Unscored):
            return index.value
        try:
            options = ScoreOptions() if identity["reward_spec"] is None else options_of(row)
            with self._scoring:
                scorer = Scorer({"default": index}, verifier=self._verifier)
                return scorer.explain(rollout, options)
        except (ConsensusPRError, ValueError) as error:
            return f"it cannot be scored again: {error}"

    def _load(self) -> None:
        """Read the given datasets, beside whatever is asked."""
        for path in self._faults:
            try:
                self._store.add_problems(
                    (problem.problem_id, problem.problem, problem.ground_truth, problem.data_source)
                    for problem, _ in read_problem_rows(path)
                )
                index = self._datasets.add(path)
                self.given[index.digest] = path
                self._store.assumed = next(iter(self.given))
            except ConsensusPRError as error:
                self._faults[path] = str(error)
        self._store.changed()


class Documents:
    """The documents of one moment."""

    def __init__(self, views: Views, moment: Moment) -> None:
        self._views = views
        self._now = moment
        self._limit: int | None = None  # rows of a page, if not as asked

    def answer(self, path: str, query: Query = ()) -> Document:
        """Return a document.

        Args:
            path: below ``/api/``, decoded: its name, a run or a digest, and the rest.
            query: its parameters.

        Raises:
            LookupError: there is none.
            InputError: a parameter is not as it must be.
            DataError: a sample cannot be read any more.
        """
        name, *arguments = path.split("/", 2)
        make, number = _MAKERS.get(name, (None, 0))
        if make is None or len(arguments) != number:
            raise LookupError(f"there is no document {one_line(path, 80)!r}")
        document: Document = make(self, *arguments, query)
        return document

    def _filter(self, query: Query, allowed: Sequence[str]) -> Filter:
        wanted = Filter.of(query, allowed)
        return wanted if self._limit is None else replace(wanted, limit=self._limit)

    def _run(self, text: str) -> Run:
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise LookupError(f"there is no run {one_line(text)!r}; runs have numbers")
        return self._now.run(int(text))

    # Runs

    def state(self, query: Query = ()) -> Document:
        """Return runs and how far they are read."""
        Filter.of(query, ())
        return {
            "revision": self._now.revision,
            "runs": [
                {
                    "id": run.id,
                    "name": run.source.name,
                    "kind": run.source.kind,
                    "growing": run.source.grows,
                    "read": 1.0 if run.whole else min(0.99, run.source.read_share()),
                    "left_out": run.left_out(),
                    **self._now.remembered(("run", run.id), lambda run=run: self._sums(run)),  # type: ignore[misc]
                }
                for run in self._now.runs
            ],
            "datasets_loading": self._views.loading,
            "left_out": self._views.left_out(),
        }

    def _sums(self, run: Run) -> Document:
        def names(column: str) -> list[str | None]:
            sql = (
                f'SELECT "{column}" AS name, count(*) AS n FROM samples WHERE run = ?'
                f" GROUP BY 1 ORDER BY n DESC, name LIMIT {MAX_NAMES}"
            )
            return [row["name"] for row in self._now.rows(sql, [run.id])]

        [sums] = self._now.rows(_RUN, [run.id])
        first, last = sums.pop("first"), sums.pop("last")
        return {
            **sums,
            "statuses": sums["statuses"] or {},
            "steps": None if first is None else [first, last],
            "splits": names("split"),
            "sources": names("source"),
            "models": names("model"),
            "diagnoses": names("diagnosis"),
        }

    def curves(self, query: Query) -> Document:
        """Return the curves of some runs: a point for each step, or for neighbouring ones."""
        wanted = self._filter(query, ("run", "step", "split", "source", "model"))
        where, values = self._now.condition(wanted)
        points: list[Row] = self._now.remembered(
            ("curves", where, repr(values)),
            lambda: self._now.rows(_CURVES.format(where=where), values),
        )
        runs = []
        for number in wanted.runs or range(len(self._now.runs)):
            mine = [point for point in points if point["run"] == number]
            with_step = [point for point in mine if point["x"] is not None]
            total = [{name: p[name] for name in _CURVE} for p in mine if p["x"] is None]
            runs.append(
                {
                    "run": number,
                    **{n: [point[n] for point in with_step] for n in ("x", "first", *_CURVE)},
                    "without_step": sum(point["samples"] for point in total),
                    "total": total,
                }
            )
        return {"revision": self._now.revision, "runs": runs}

    # Samples

    def samples(self, query: Query) -> Document:
        """Return a page of samples; with a text, those found so far."""
        wanted = self._filter(query, PARAMETERS)
        page = {"revision": self._now.revision, "offset": wanted.offset}
        if wanted.q:
            rows, search = self._now.search(wanted)
            return page | {"total": None, "rows": rows, "search": search}
        total, rows = self._now.count(wanted), self._now.page(wanted)
        return page | {"total": total, "rows": rows, "search": None}

    def sample(self, run: str, key: str, query: Query) -> Document:
        """Return one sample with its text, its nodes and the arithmetic of its reward."""
        [whole], remaining = _taken(query, "whole")
        Filter.of(remaining, ())
        light, row = self._now.sample(self._run(run), key)
        return self._sample(light, row, self._now.page(_group_filter(light)), whole == "1")

    def _sample(self, light: Row, row: Row, neighbours: Sequence[Row], whole: bool) -> Document:
        """Return the document of a sample; ``neighbours`` are those of its group."""
        identity, text = row["identity"], row["response"]
        found = self._views.explain(row, identity)
        explained = None if isinstance(found, str) else found
        channels = light["channels"] or ""
        if explained is None:
            known = self._nodes(light["problem"], row.get("dataset_digest"))
            if len(known) != len(channels):
                known = [None] * len(channels)
            nodes = [
                _node(at, node) | {"matched": letter != "-", "channel": _CHANNEL_OF.get(letter)}
                for at, (node, letter) in enumerate(zip(known, channels, strict=True))
            ]
        else:
            nodes = [_explained_node(at, node) for at, node in enumerate(explained.nodes)]
        problem = self._problem(light["problem"], identity["dataset_digest"])
        other = json.loads(row.get(OTHER) or "{}", parse_constant=lambda _: None)
        return {
            "run": light["run"],
            "key": light["key"],
            "sample": light,
            "text": None if text is None else _pieces(text, explained, whole),
            "text_why": "its text was not kept" if text is None else None,
            "characters": None if text is None else len(text),
            "nodes": nodes,
            "explained": explained is not None,
            "explained_why": found if explained is None else None,
            "problem": problem,
            "answer": _answer(light, row["ground_truth"] or problem["ground_truth"]),
            "ncr": _ncr(light, explained),
            "reward": _arithmetic(light, identity, row),
            "differs": None if explained is None else _differs(light, explained),
            "identity": _identity(identity),
            "other": other,
            "neighbours": [{name: near[name] for name in _OF_NEIGHBOURS} for near in neighbours],
        }

    def _nodes(
        self, problem_id: str, digest: str | None, at_least: int = 0
    ) -> Sequence[Node | None]:
        """Return the nodes of a problem, as many None if fewer are known than samples have."""
        index = self._views.index(digest)
        entry = None if isinstance(index, Unscored) else index.entry(problem_id)
        known = () if entry is None else entry.nodes
        return known if len(known) >= at_least else [None] * at_least

    def _problem(self, problem_id: str, digest: str | None) -> Document:
        known = self._now.problem(problem_id)
        index = self._views.index(digest)
        entry = None if isinstance(index, Unscored) else index.entry(problem_id)
        truth = known.get("ground_truth") if entry is None else entry.ground_truth
        return {
            "id": problem_id,
            "text": known.get("text") or None,
            "ground_truth": truth,
            "source": known.get("source") or (entry.data_source if entry else None),
        }

    def group(self, run: str, query: Query) -> Document:
        """Return the samples of one prompt at one step side by side."""
        number = self._run(run).id
        wanted = Filter.of(query, ("step", "group", "problem", "split", "model", "sort", "desc"))
        if not ({"group", "problem"} & set(wanted.texts)):
            raise InputError("name the group or the problem: ?group=ID, or ?step=N&problem=ID")
        if "group" not in wanted.texts:
            # Without an id, a group is the samples of a prompt that have all else in common.
            texts = {"split": (None,), "model": (None,), **wanted.texts}
            unknown = () if "step" in wanted.ranges else ("step",)
            wanted = replace(wanted, texts=texts, unknown=unknown)
        wanted = replace(wanted, runs=(number,), limit=MAX_GROUP, sort=wanted.sort or "score")
        rows = self._now.page(wanted)
        if not rows:
            raise LookupError(f"run {number} has no such group")
        problem_id, digest = rows[0]["problem"], self._now.dataset_of(rows[0]["identity"])
        digests = {self._now.dataset_of(row["identity"]) for row in rows}
        nodes: list[Document] = []
        if len(digests) == len({row["problem"] for row in rows}) == 1:
            nodes = self._reached_nodes(problem_id, digest, [row | {"n": 1} for row in rows])
        return {
            "run": number,
            **{name: rows[0][name] for name in _GROUP if name != "problem"},
            "problem": self._problem(problem_id, digest),
            "total": self._now.count(wanted),
            "rows": rows,
            "nodes": nodes,
            "datasets": len(digests),
            "reward": self._spread(wanted),
        }

    def _spread(self, wanted: Filter) -> Document:
        """Return what a trainer that compares samples has to learn from, over all of them."""
        where, values = self._now.condition(wanted)
        [sums] = self._now.rows(
            "SELECT avg(score) AS mean, stddev_pop(score) AS std, min(score) AS lowest,"
            " max(score) AS highest, count(DISTINCT round(score / ?)) AS distinct"
            f" FROM samples WHERE {where}",
            [_EQUAL, *values],
        )
        known = sums["mean"] is not None
        return sums | {"no_gradient": sums["highest"] - sums["lowest"] <= _EQUAL if known else None}

    def _reached_nodes(
        self, problem_id: str, digest: str | None, counts: Sequence[Row]
    ) -> list[Document]:
        """Return the nodes of a problem, each with how many right and wrong samples reached it."""
        width = max((len(row["channels"] or "") for row in counts), default=0)
        reached = _Reached(counts)
        known = self._nodes(problem_id, digest, width)
        return [_node(at, node) | reached.at(at) for at, node in enumerate(known)]

    # Problems

    def problems(self, query: Query) -> Document:
        """Return a page of problems."""
        [sort, named], remaining = _taken(query, "sort", "q")
        sort = choice("sort", {"sort": sort}, PROBLEM_SORTS) or "samples"
        wanted = self._filter(remaining, _CHOSEN)
        where, values = self._now.condition(wanted)
        found = self._now.remembered(
            ("problems", where, repr(values)),
            lambda: self._now.table(_PROBLEMS.format(where=where), values),
        )
        return {"revision": self._now.revision, **_table_page(found, wanted, sort, named)}

    def problem(self, run: str, problem_id: str, query: Query) -> Document:
        """Return a problem: its nodes, and how often each was reached over the steps."""
        number = self._run(run).id
        wanted = Filter.of(query, [n for n in _CHOSEN if n not in ("run", "problem", *_PAGE)])
        texts = {**wanted.texts, "problem": (problem_id,)}
        wanted = replace(wanted, runs=(number,), texts=texts, limit=10)
        where, values = self._now.condition(replace(wanted, dataset=None))
        # The newest dataset first.
        datasets: Counter[str | None] = Counter()
        for row in self._now.rows(
            f"SELECT identity, count(*) AS n FROM samples WHERE {where} GROUP BY 1"
            ' ORDER BY max("time") DESC NULLS LAST, identity DESC',
            values,
        ):
            datasets[self._now.dataset_of(row["identity"])] += row["n"]
        # Nodes of another dataset are other nodes, whatever their problem is called.
        digest = wanted.dataset or next(iter(datasets), None)
        wanted = replace(wanted, dataset=digest)
        where, values = self._now.condition(wanted)
        counts = self._now.rows(
            "SELECT step, acc, channels, count(*) AS n, sum(ncr) AS ncr, sum(score) AS score,"
            " count(ncr) AS with_ncr, count(score) AS with_score"
            f" FROM samples WHERE {where} GROUP BY 1, 2, 3 ORDER BY 1",
            values,
        )
        if not counts:
            raise LookupError(f"run {number} has no sample of problem {one_line(problem_id)!r}")
        reached = _Reached(counts)
        nodes = self._reached_nodes(problem_id, digest, counts)
        return {
            "run": number,
            "problem": self._problem(problem_id, digest),
            "dataset": digest,
            "datasets": [{"digest": name, "samples": n} for name, n in datasets.items()],
            "samples": sum(row["n"] for row in counts),
            "right": reached.right,
            "wrong": reached.wrong,
            "nodes": nodes,
            "history": _history(counts, len(nodes)),
            "newest": self._now.page(wanted),
            "best": self._now.page(replace(wanted, sort="score")),
            "worst": self._now.page(replace(wanted, sort="score", desc=False)),
        }

    # Two sides

    def compare(self, query: Query) -> Document:
        """Return what changes from one side to another: a page of problems, or of prompts."""
        taken, remaining = _taken(query, "by", "change", "sort", "q")
        by, change, sort, named = taken
        given = {"by": by, "change": change, "sort": sort}
        by = choice("by", given, COMPARED_BY) or "problem"
        rule = _CHANGED.get(choice("change", given, _CHANGED) or "")
        sort = choice("sort", given, COMPARED_SORTS) or "acc"
        sides: dict[str, list[tuple[str, str]]] = {"a": [], "b": []}
        page = []
        for name, value in remaining:
            side, _, own = name.partition("_")
            if side in sides and own in ("", "model", "step"):
                sides[side].append((own or "run", value))
            elif name in ("source", "split"):
                for asked in sides.values():
                    asked.append((name, value))
            else:
                page.append((name, value))
        wanted = self._filter(page, _PAGE)
        conditions = {side: self._now.condition(Filter.of(q)) for side, q in sides.items()}
        (a, a_values), (b, b_values) = conditions.values()
        values = [*a_values, *b_values]
        by_step = by == "step"
        sql = _COMPARED.format(
            a=a, b=b, same=" AND a.step = b.step" if by_step else "",
            step="step" if by_step else "NULL::BIGINT",
        )  # fmt: skip
        found: pa.Table = self._now.remembered(
            ("compare", by, a, b, repr(values)), lambda: self._now.table(sql, values)
        )
        return {
            "revision": self._now.revision,
            "sides": {side: self._side(*condition) for side, condition in conditions.items()},
            "counts": {name: pc.sum(each(found)).as_py() or 0 for name, each in _CHANGED.items()},
            "differences": {name: _difference(found, name) for name in ("acc", "ncr", "reward")},
            "parts": _parts(found),
            **_table_page(
                found if rule is None else found.filter(rule(found)), wanted, sort, named
            ),
        }

    def _side(self, where: str, values: Sequence[Any]) -> Document:
        [sums] = self._now.rows(_SIDE.format(where=where), values)
        digests = {self._now.dataset_of(identity) for identity in sums["datasets"] or ()}
        return sums | {"datasets": sorted(digest for digest in digests if digest is not None)}

    # Datasets

    def datasets(self, query: Query = ()) -> Document:
        """Return the datasets that scored, and those that were given."""
        Filter.of(query, ())
        rows: dict[str, Document] = {}

        def row_of(digest: str) -> Document:
            if digest not in rows:
                index = self._views.index(digest)
                file = self._views.given.get(digest)
                known = None if isinstance(index, Unscored) else index
                rows[digest] = {
                    "digest": digest,
                    "name": None,
                    "file": None if file is None else file.name,
                    "problems": None if known is None else len(known),
                    "nodes": None if known is None else known.info.num_nodes,
                    "samples": 0,
                    "runs": [],
                    "browsable": known is not None,
                    "reviewable": known is not None and file is not None,
                    "why": str(index) if known is None else None,
                }
            return rows[digest]

        for digest in self._views.given:
            row_of(digest)
        for used in self._now.rows(
            "SELECT identity, count(*) AS n, list(DISTINCT run) AS runs FROM samples GROUP BY 1"
        ):
            identity_digest = self._now.dataset_of(used["identity"])
            if identity_digest is not None:
                row = row_of(identity_digest)
                row["samples"] += used["n"]
                row["runs"] = sorted({*row["runs"], *used["runs"]})
                row["name"] = row["name"] or self._now.identity(used["identity"])["dataset"]
        return {"revision": self._now.revision, "rows": list(rows.values())}

    def dataset(self, digest: str, query: Query) -> Document:
        """Return a page of a dataset's problems, with the rates of their nodes."""
        [sort, named], remaining = _taken(query, "sort", "q")
        choice("sort", {"sort": sort}, ("gap",))
        wanted = self._filter(remaining, [name for name in _CHOSEN if name != "problem"])
        wanted = replace(wanted, dataset=digest)
        index = self._index(digest)
        where, values = self._now.condition(wanted)
        if named:
            ids = [name for name in index.problem_ids() if named.casefold() in name.casefold()]
        elif sort:
            order = self._now.remembered(
                ("gap", where, repr(values)),
                lambda: self._now.rows(_GAPS.format(where=where), values),
            )
            ids = [row["problem"] for row in order if row["problem"] in index]
        else:
            ids = index.problem_ids()
        shown = ids[wanted.offset : wanted.offset + wanted.limit]
        counts: dict[str, list[Row]] = {problem_id: [] for problem_id in shown}
        for row in self._now.rows(
            f"SELECT problem, acc, channels, count(*) AS n FROM samples WHERE {where}"
            " AND problem IN (SELECT unnest(?)) GROUP BY 1, 2, 3",
            [*values, shown],
        ):
            counts[row["problem"]].append(row)
        file = self._views.given.get(digest)
        return {
            "digest": digest,
            "file": None if file is None else file.name,
            "reviewable": file is not None,
            "total": len(ids),
            "offset": wanted.offset,
            "rows": [
                {
                    **self._problem(problem_id, digest),
                    "samples": sum(row["n"] for row in rows),
                    "right": _Reached(rows).right,
                    "wrong": _Reached(rows).wrong,
                    "nodes": self._reached_nodes(problem_id, digest, rows),
                }
                for problem_id, rows in counts.items()
            ],
        }

    def _index(self, digest: str) -> DatasetIndex:
        if digest not in [row["digest"] for row in self.datasets()["rows"]]:
            raise LookupError(f"there is no dataset {one_line(digest, 80)!r} here")
        index = self._views.index(digest)
        if isinstance(index, Unscored):
            raise LookupError(f"dataset {digest}: {index}")
        return index

    def review(self, digest: str, dropped: object) -> Document:
        """Write a new dataset file without some nodes, beside the given one.

        Args:
            digest: of a dataset that was given as a file.
            dropped: pairs of problem id and number of the node, from 0.

        Raises:
            InputError: a pair names no node, or the file cannot be written.
            LookupError: there is no such dataset.
        """
        index = self._index(digest)
        file = self._views.given.get(digest)
        if file is None:
            raise InputError("only a dataset that was given as a file of rows can be reviewed")
        wanted = _dropped(dropped, index)
        # Nodes are named by their numbers, which mean those of the file that was read.
        if DatasetIndex.load(file).digest != digest:
            raise InputError(f"{file.name} has changed since it was read: start the page again")
        path = _write_reviewed(file, wanted)
        # So that it is named as a server would name it.
        written = DatasetIndex.load(path)
        return {
            "file": str(path),
            "digest": written.digest,
            "problems": len(written),
            "nodes": written.info.num_nodes,
            "dropped": sum(map(len, wanted.values())),
        }

    # A page to keep

    def kept(
        self,
        report: PageReport | None = None,
        progress: Callable[[int], None] = lambda done: None,
    ) -> Iterator[tuple[str, Any]]:
        """Yield the documents of a page to keep, each with the name that its script asks for.

        They are those that the links and choices of such a page lead to.  Rows of samples stand
        in the document ``rows`` once; a list of samples has their places there.

        Args:
            report: stands beside the samples.
            progress: called with the number of samples that are done.
        """
        self._limit = MAX_OFFSET

        def made(asked: Mapping[str, str], *path: str) -> tuple[str, Document]:
            return _named(asked, *path), self.answer("/".join(path), [*asked.items()])

        state = self.state()
        for run in state["runs"]:
            run["growing"] = False
        yield "state", state | {"report": report is not None}
        if report is not None:
            yield "report", document(report)
        for asked in ({}, *_each(state, "split")):
            yield made(asked, "curves")
        rows = self._now.page(Filter(limit=MAX_OFFSET))
        yield "rows", rows
        places = {(row["run"], row["key"]): at for at, row in enumerate(rows)}
        problems = dict.fromkeys((str(row["run"]), row["problem"]) for row in rows)
        sides = _sides(state)
        lists = [*LOOKS, *(each for name in CHOICES for each in _each(state, name)), *sides]
        lists += [{"problem": problem} for _, problem in problems]
        lists += [{"run": run, "problem": problem} for run, problem in problems]
        lists += [side | {"problem": name} for side in sides for _, name in problems]
        for name, asked in {_named(asked, "samples"): asked for asked in lists}.items():
            found = self._now.page(self._filter([*asked.items()], PARAMETERS))
            at = [places[row["run"], row["key"]] for row in found]
            yield name, {"total": len(at), "search": None, "places": at}
        yield from self._kept_samples(rows, progress)
        for run in state["runs"]:
            yield made({"run": str(run["id"])}, "problems")
        for run_id, problem in problems:
            name, shown = made({}, "problem", run_id, problem)
            yield name, shown
            for other in shown["datasets"]:
                if other["digest"] not in (None, shown["dataset"]):
                    yield made({"dataset": other["digest"]}, "problem", run_id, problem)
        for a, b in itertools.permutations(sides, 2):
            for look in COMPARED_LOOKS:
                yield made({**_on_side("a", a), **_on_side("b", b), **look}, "compare")
        name, known = made({}, "datasets")
        for row in known["rows"]:
            row["reviewable"] = False
        yield name, known
        for digest in (row["digest"] for row in known["rows"] if row["browsable"]):
            for asked in ({}, {"sort": "gap"}):
                name, dataset = made(asked, "dataset", digest)
                yield name, dataset | {"reviewable": False}

    def _kept_samples(
        self, rows: Sequence[Row], progress: Callable[[int], None]
    ) -> Iterator[tuple[str, Any]]:
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            groups.setdefault(_group_of(row), []).append(row)
        done = 0
        for (run_id, *values), some in groups.items():
            wholes = self._now.wholes(self._now.run(run_id), [row["key"] for row in some])
            best = sorted(some, key=lambda row: math.inf if row["score"] is None else -row["score"])
            for row in some:
                sample = self._sample(row, wholes[row["key"]], best[:MAX_NEIGHBOURS], True)
                yield f"sample/{run_id}/{row['key']}", sample
            pairs = zip(_GROUP, values, strict=True)
            asked = {name: str(value) for name, value in pairs if value is not None}
            yield _named(asked, "group", str(run_id)), self.group(str(run_id), [*asked.items()])
            done += len(some)
            progress(done)


# The documents by name: what makes each, and the number of parts of its path behind the name.
_MAKERS: Final[dict[str, tuple[Callable[..., Document], int]]] = {
    "state": (Documents.state, 0),
    "curves": (Documents.curves, 0),
    "samples": (Documents.samples, 0),
    "sample": (Documents.sample, 2),
    "group": (Documents.group, 1),
    "problems": (Documents.problems, 0),
    "problem": (Documents.problem, 2),
    "compare": (Documents.compare, 0),
    "datasets": (Documents.datasets, 0),
    "dataset": (Documents.dataset, 1),
}
_CHANNEL_OF: Final = {"p": "pattern", "s": "statement", "c": "code"}


def _taken(query: Query, *names: str) -> tuple[list[str], Query]:
    """Return the values of some parameters, "" if one is not given, and the other parameters."""
    found = []
    for name in names:
        values = [value for key, value in query if key == name]
        if len(values) > 1 or len("".join(values)) > MAX_CHARS:
            raise InputError(f"{name} is given once, with at most {MAX_CHARS} characters")
        found.append("".join(values))
    return found, [(key, value) for key, value in query if key not in names]


class _Reached:
    """How many right and wrong samples there are, and how many of them reached each node.

    Args:
        counts: rows with ``acc``, ``channels`` and their number ``n``.
    """

    def __init__(self, counts: Iterable[Row]) -> None:
        self.right = self.wrong = 0
        self._by_node: Counter[tuple[int, bool]] = Counter()
        for row in counts:
            if row["acc"] is None:
                continue
            right = row["acc"] == 1
            self.right += row["n"] if right else 0
            self.wrong += 0 if right else row["n"]
            for at, letter in enumerate(row["channels"] or ""):
                if letter != "-":
                    self._by_node[at, right] += row["n"]

    def at(self, node: int) -> Document:
        """Return the counts of a node."""
        return {"by_right": self._by_node[node, True], "by_wrong": self._by_node[node, False]}


# The lists that a page to keep holds.
LOOKS: Final[tuple[dict[str, str], ...]] = (
    {}, {"sort": "score"}, {"sort": "score", "desc": "0"}, {"sort": "num_tokens"},
    *({"kind": kind} for kind in KINDS),
)  # fmt: skip
CHOICES: Final = ("run", "verdict", "source", "split", "model", "diagnosis", "status")
COMPARED_LOOKS: Final[tuple[dict[str, str], ...]] = (
    {}, {"change": "better", "sort": "acc"}, {"change": "worse", "sort": "acc", "desc": "0"},
    *({"change": change} for change in ("same", "only_a", "only_b")),
)  # fmt: skip


def _each(state: Document, name: str) -> list[dict[str, str]]:
    """Return each choice of a name that a page offers."""
    if name == "verdict":
        return [{name: value} for value in VERDICTS]
    if name == "run":
        return [{name: str(run["id"])} for run in state["runs"]]
    column = {"diagnosis": "diagnoses", "status": "statuses"}.get(name, f"{name}s")
    values = {value for run in state["runs"] for value in run[column] if value}
    return [{name: value} for value in sorted(values)]


def _sides(state: Document) -> list[dict[str, str]]:
    """Return what a page to keep compares: its runs, else its models, else both ends of its run."""
    runs = state["runs"]
    if len(runs) > 1:
        return [{"run": str(run["id"])} for run in runs[:MAX_SIDES]]
    if not runs:
        return []
    only = {"run": str(runs[0]["id"])}
    models = [model for model in runs[0]["models"] if model]
    if len(models) > 1:
        return [only | {"model": model} for model in models[:MAX_SIDES]]
    low, high = runs[0]["steps"] or (0, 0)
    part = (high - low) // 3
    ends = (f"{low}..{low + part}", f"{high - part}..{high}")
    return [only | {"step": steps} for steps in ends] if low < high else []


def _on_side(side: str, asked: Mapping[str, str]) -> dict[str, str]:
    return {side if name == "run" else f"{side}_{name}": value for name, value in asked.items()}


def _named(asked: Mapping[str, str], *path: str) -> str:
    """Return the name of a document, as the page's script makes it (encodeURIComponent)."""
    name = "/".join(quote(part, safe="!*'()", errors="replace") for part in path)
    pairs = [[key, asked[key]] for key in sorted(asked)]
    return (
        f"{name}?{json.dumps(pairs, ensure_ascii=False, separators=(',', ':'))}" if pairs else name
    )


def _reward_of(identity: Row) -> RewardSpec | None:
    """Return the reward that samples were scored with, None if it is not known here."""
    with contextlib.suppress(InputError):
        return None if identity["reward_spec"] is None else read_reward(identity["reward_spec"])
    return None


def _identity(identity: Row) -> Document:
    spec = _reward_of(identity)
    reward = None if spec is None else asdict(spec) | {"formula": spec.formula()}
    return {**identity, "reward_spec": reward}


def _node(at: int, node: Node | NodeExplanation | None) -> Document:
    return {
        "number": at,
        "id": None if node is None else node.node_id,
        "label": (node.label or None) if node else None,
        "is_final": None if node is None else node.is_final,
        "expressions": [] if node is None else list(node.expressions),
    }


def _explained_node(at: int, node: NodeExplanation) -> Document:
    return _node(at, node) | {
        "counts": node.counts,
        "matched": node.matched,
        "channel": node.channel or None,
        "span": None if node.span is None else list(node.span),
        "expression": node.expression or None,
    }


def _pieces(text: str, explained: Explanation | None, whole: bool) -> list[Document]:
    """Return a response in pieces, each with the nodes whose hits are around it."""
    marks = [
        Mark(*node.span, at)
        for at, node in enumerate(explained.nodes if explained else ())
        if node.span is not None
    ]
    sizes = {mark.node: mark.end - mark.start for mark in marks}
    limit = len(text) if whole else WHOLE_CHARS
    pieces: list[Document] = []
    around: list[int] = []
    end_of_last = 0
    for start, end in parts_to_show(text, marks, limit):
        if start > end_of_last:
            pieces.append({"skipped": start - end_of_last})
        for piece in cut_at_marks(text, marks, start, end):
            around = sorted({*around, *piece.begins}, key=lambda node: (-sizes[node], node))
            pieces.append({"text": piece.text, "nodes": around, "ends": list(piece.ends)})
            around = [node for node in around if node not in piece.ends]
        end_of_last = end
    return pieces


def _answer(light: Row, truth: str | None) -> Document:
    """Return Acc with its reason."""
    acc, answer, method = light["acc"], light["answer"], light["answer_method"]
    shown = "no answer" if answer is None else f"the answer {one_line(answer, 80)!r}"
    if acc is None:
        sentence = light["message"] or "It is not known whether the answer is right."
    elif truth is None:
        sentence = f"Found in the text: {shown}; it counts as {'right' if acc else 'wrong'}."
    else:
        relation = "equals" if acc else "does not equal"
        sentence = (
            f"Found in the text: {shown}, which {relation} the ground truth {one_line(truth)!r}."
        )
        if answer is None and not acc:
            sentence = f"No answer was found in the text; the ground truth is {one_line(truth)!r}."
    if light["status"] == Status.ANSWER_UNDECIDED:
        sentence = f"Whether {shown} is right could not be decided ({method}); it counts as wrong."
    return {
        "acc": acc,
        "answer": answer,
        "ground_truth": truth,
        "method": method or None,
        "sentence": sentence,
    }


def _ncr(light: Row, explained: Explanation | None) -> Document:
    """Return the arithmetic of NCR: nodes, then the guard."""
    guard = None if explained is None else explained.guard
    return {
        "num_matched": light["num_matched"],
        "num_nodes": light["num_nodes"],
        "ncr_raw": light["ncr_raw"],
        "guard": light["guard"],
        "ncr": light["ncr"],
        "guard_figures": None if guard is None else asdict(guard),
    }


def _arithmetic(light: Row, identity: Row, row: Row) -> Document:
    """Return the reward as a sum of terms."""
    spec = _reward_of(identity)
    epoch = row.get("epoch") or 0
    terms: list[Document] = []
    acc, ncr = light["acc"], light["ncr"]
    if spec is not None and light["reward"] is not None:
        added = spec.terms(acc or 0.0, ncr or 0.0, epoch)
        terms = [
            {"name": name, "value": value, "adds": added[name]}
            for name, value in (("acc", acc), ("ncr", ncr))
        ]
        if light["penalty"]:
            terms.append({"name": "penalty", "value": light["penalty"], "adds": light["penalty"]})
    return {
        "formula": None if spec is None else spec.formula(epoch),
        "terms": terms,
        "reward": light["reward"],
        "penalty": light["penalty"],
        "score": light["score"],
    }


def _differs(light: Row, explained: Explanation) -> str | None:
    """Return a sentence if the score of today differs from the logged one."""
    score = explained.score
    now = {"status": score.status.value, "acc": score.acc, "ncr": score.ncr}
    if light["reward"] is not None:
        now["reward"] = score.reward
    changes = [
        f"{name} was {light[name]} and is {value}"
        for name, value in now.items()
        if not _same(light[name], value)
    ]
    return f"Scored again, the result differs: {', '.join(changes)}." if changes else None


def _same(logged: object, now: object) -> bool:
    if isinstance(logged, float) and isinstance(now, float):
        return abs(logged - now) <= _EQUAL
    return logged == now


_OF_NEIGHBOURS: Final = ("key", "score", "acc", "ncr", "status", "flags")


def _group_of(row: Row) -> tuple[Any, ...]:
    """Return the key of a sample's group: its run, and its values of :data:`_GROUP`."""
    values = {**row, "problem": row["problem"] if row["group"] is None else None}
    return row["run"], *(values[name] for name in _GROUP)


def _group_filter(row: Row) -> Filter:
    """Return which samples are in the group of one, the best ones first."""
    run, *values = _group_of(row)
    texts = {
        name: (value,)
        for name, value in zip(_GROUP, values, strict=True)
        if name != "step" and (name, value) != ("problem", None)
    }
    step = row["step"]
    ranges = {} if step is None else {"step": (float(step), float(step))}
    unknown = ("step",) if step is None else ()
    return Filter((run,), texts, ranges, unknown, sort="score", limit=MAX_NEIGHBOURS)


def _table_page(table: pa.Table, wanted: Filter, sort: str, named: str) -> Document:
    """Return a page of problems in order, those without a value last.

    Args:
        named: part of an id that is looked for.
    """
    if named:
        found = pc.match_substring(table.column("problem"), named, ignore_case=True)
        table = table.filter(found)
    keys = [(sort, "descending" if wanted.desc else "ascending"), ("problem", "ascending")]
    order = pc.sort_indices(table, keys)
    rows = table.take(order.slice(wanted.offset, wanted.limit)).to_pylist()
    return {"total": table.num_rows, "offset": wanted.offset, "rows": rows}


def _compared(rule: Callable[[pa.Array, float], pa.Array], bound: float) -> Any:
    return lambda table: pc.fill_null(rule(table.column("acc"), bound), False)


# Which problems of two sides changed, and how; Acc differs by more than rounding.
_CHANGED: Final[dict[str, Callable[[pa.Table], pa.ChunkedArray]]] = {
    "better": _compared(pc.greater, _EQUAL),
    "worse": _compared(pc.less, -_EQUAL),
    "same": lambda table: pc.fill_null(pc.less_equal(pc.abs(table.column("acc")), _EQUAL), False),
    "only_a": lambda table: pc.is_null(table.column("b_samples")),
    "only_b": lambda table: pc.is_null(table.column("a_samples")),
}


def _known(table: pa.Table, name: str) -> npt.NDArray[np.float64]:
    values: npt.NDArray[np.float64] = table.column(name).drop_null().to_numpy()
    return values


def _difference(table: pa.Table, name: str) -> Document:
    """Return the mean difference over what both sides have, and its standard error."""
    values = _known(table, name)
    error = float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else None
    return {
        "mean": float(values.mean()) if len(values) else None,
        "error": error,
        "count": len(values),
    }


def _parts(table: pa.Table) -> list[int]:
    """Return how many problems changed by how much: from -1 to 1, no change in the middle."""
    values = _known(table, "acc")
    far = np.sign(values) * np.ceil(np.abs(values) * CHANGE_PARTS - _EQUAL)
    at = far.astype(np.int64) + CHANGE_PARTS
    counts: list[int] = np.bincount(at, minlength=2 * CHANGE_PARTS + 1).tolist()
    return counts


def _history(counts: Sequence[Row], width: int) -> Document:
    """Return, over the steps, how often each node was reached by right and by wrong samples."""
    steps = sorted({row["step"] for row in counts if row["step"] is not None})
    each = max(1, -(-len(steps) // MAX_HISTORY))
    parts = [steps[at : at + each] for at in range(0, len(steps), each)]
    part_of = {step: at for at, part in enumerate(parts) for step in part}
    rows: list[list[Row]] = [[] for _ in parts]
    for row in counts:
        if row["step"] is not None:
            rows[part_of[row["step"]]].append(row)
    reached = [_Reached(some) for some in rows]
    return {
        "x": [part[-1] for part in parts],
        "first": [part[0] for part in parts],
        "right": [counts.right for counts in reached],
        "wrong": [counts.wrong for counts in reached],
        "ncr": [_mean(some, "ncr") for some in rows],
        "score": [_mean(some, "score") for some in rows],
        "nodes": [
            {
                name: [of_part.at(at)[name] for of_part in reached]
                for name in ("by_right", "by_wrong")
            }
            for at in range(width)
        ],
    }


def _mean(rows: Sequence[Row], name: str) -> float | None:
    count = sum(row[f"with_{name}"] for row in rows)
    return sum(row[name] or 0.0 for row in rows) / count if count else None


def _dropped(given: object, index: DatasetIndex) -> dict[str, set[int]]:
    """Return the nodes to drop by problem."""
    if not isinstance(given, list) or not given:
        raise InputError("drop must be a list of [problem, node], with one of them at least")
    if len(given) > MAX_DROPPED:
        raise InputError(f"drop names {len(given)} nodes, the limit is {MAX_DROPPED}")
    wanted: dict[str, set[int]] = {}
    for pair in given:
        match pair:
            case [str(problem_id), int(at)] if not isinstance(at, bool):
                entry = index.entry(problem_id)
                if entry is None or not 0 <= at < entry.num_nodes:
                    raise InputError(f"problem {one_line(problem_id)!r} has no node {at}")
                wanted.setdefault(problem_id, set()).add(at)
            case _:
                shown = one_line(json.dumps(pair), 80)
                raise InputError(f"drop must be a list of [problem, node], got {shown}")
    return wanted


def _write_reviewed(file: Path, dropped: Mapping[str, set[int]]) -> Path:
    """Write the dataset without some nodes under a name that no file has; return it."""
    endings = (".jsonl.gz", ".jsonl", ".parquet")
    ending = next((ending for ending in endings if file.name.endswith(ending)), ".jsonl")
    stem = file.name.removesuffix(ending)
    try:
        for number in itertools.count(1):
            path = file.with_name(f"{stem}.reviewed-{number}{ending}")
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o666))  # another review may write
                break
        try:
            with open_writer(path) as out:
                for problem, row in read_problem_rows(file):
                    drop = dropped.get(problem.problem_id, set())
                    if drop:
                        nodes = [node for at, node in enumerate(row["nodes"]) if at not in drop]
                        row = {**row, "nodes": nodes}
                    out.write(row)
        except BaseException:
            path.unlink()
            raise
    except OSError as error:
        raise InputError(f"cannot write beside {file}: {error.strerror}") from None
    return path
