"""The documents that the page shows, as plain JSON values.

:meth:`Documents.answer` makes each of them from a path and its parameters, for the live page and
for a page to keep.  A value that is not known is None, never 0.  Nodes count from 0.  A sample is
scored again to explain it, with the dataset that the run keeps or that was given.
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

import pyarrow as pa
import pyarrow.compute as pc

from consensuspr.console import one_line
from consensuspr.data import Node, open_writer, read_problem_rows
from consensuspr.errors import ConsensusPRError, InputError
from consensuspr.score_log.formulas import mixed_formulas
from consensuspr.score_log.replay import Datasets, Unscored, explain_row
from consensuspr.score_log.schema import read_reward
from consensuspr.scoring import AnswerVerifier, DatasetIndex
from consensuspr.scoring.marks import Mark, cut_at_marks, parts_to_show, words_found
from consensuspr.scoring.rewards import RewardSpec
from consensuspr.scoring.types import Explanation, NodeExplanation, ScoreOptions, Status
from consensuspr.web.figures import PageReport, document
from consensuspr.web.sources import OTHER, LogSource
from consensuspr.web.store import (
    KINDS,
    MAX_CHARS,
    MAX_OFFSET,
    PARAMETERS,
    REACHED,
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
TENTHS: Final = 10  # parts of a run, as rows of `consensuspr curves`; the page shows both ends
MAX_HISTORY: Final = 10  # points of a problem's history: columns that fit into a third of a window
MAX_NAMES: Final = 200  # different splits, sources and models that are offered
MAX_GROUP: Final = 256
MAX_SIDES: Final = 6  # runs or models that a page to keep compares with each other
# Of a response; of a longer one its beginning, its end and the text around each hit.
WHOLE_CHARS: Final = 100_000
MAX_DROPPED: Final = 100_000  # nodes that one review may drop
# For a dataset that is being read when all ends; a large one may take minutes.
CLOSE_S: Final = 5.0
# Rewards nearer than this are the same to a trainer, which compares them in single precision.
_EQUAL: Final = 1e-6

PROBLEM_SORTS: Final = (
    "problem", "source", "samples", "acc", "ncr", "ncr_right", "ncr_wrong", "reward", "change",
)  # fmt: skip
CHANGES: Final = ("better", "worse", "same", "only_a", "only_b")
COMPARED_SORTS: Final = (
    "problem", "acc", "ncr", "reward", "a_acc", "b_acc", "a_ncr", "b_ncr", "a_reward",
    "b_reward", "a_samples", "b_samples",
)  # fmt: skip
# Columns with one value in a group of samples; of a group with an id, the problem need not.
_GROUP: Final = ("step", "split", "model", "group", "problem")
# Parameters of samples, without some.
_PAGE: Final = ("desc", "offset", "limit")
_CHOSEN: Final = tuple(name for name in PARAMETERS if name not in ("sort", "q"))
# Columns that name the rules and the dataset which scored a sample.
_IDENTITY: Final = (
    "dataset", "dataset_digest", "normal_form_version", "answer_version", "server_version",
    "scoring_version", "reward_spec", "answer_rule", "on_undecided",
)  # fmt: skip
_CHANNEL_OF: Final = {"p": "pattern", "s": "statement", "c": "code", "e": "equation"}


def _case(rules: Mapping[str, str]) -> str:
    """Return SQL for the name of the first rule that holds, else null."""
    whens = (f"WHEN {rule} THEN '{name}'" for name, rule in rules.items())
    return f"CASE {' '.join(whens)} END"


# The figures of a curve: means over the samples whose value is known, as score_log.curves has them.
_CURVE: Final = {
    "samples": "count(*)",
    "reward": "avg(score)",
    "acc": "avg(acc)",
    "ncr": "avg(ncr)",
    "ncr_of_right": "avg(ncr) FILTER (acc = 1)",
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
GROUP BY chosen.run, place * {{points}} // number ORDER BY x
"""
# By model and by source of each run; by answer and nodes reached; by reward, in tenths.
_GROUPS: Final = f"""
SELECT run, CASE WHEN grouping(model) = 0 THEN 'model' ELSE 'source' END AS "by",
    coalesce(model, source) AS name, count(*) AS samples, count(DISTINCT problem) AS problems,
    avg(acc) AS acc, avg(ncr) AS ncr, avg(ncr) FILTER (acc = 1) AS ncr_right,
    avg(ncr) FILTER (acc = 0) AS ncr_wrong, avg(score) AS reward, avg(num_tokens) AS tokens
FROM samples WHERE {{where}} GROUP BY GROUPING SETS ((run, model), (run, source))
ORDER BY run, samples DESC, name LIMIT {MAX_NAMES}
"""
_KINDS: Final = f"""
SELECT {_case(VERDICTS)} AS verdict, {_case(REACHED)} AS reached, count(*) AS samples,
    avg(score) AS reward, avg(ncr) AS ncr, avg(num_tokens) AS tokens
FROM samples WHERE {{where}} GROUP BY 1, 2
"""
_REWARDS: Final = f"""
SELECT {_case(VERDICTS)} AS verdict, floor(10 * score + 1e-9)::INTEGER AS tenth,
    count(*) AS samples
FROM samples WHERE {{where}} AND score IS NOT NULL GROUP BY 1, 2
"""
_RUN: Final = """
SELECT count(*) AS samples, min(step) AS first, max(step) AS last,
    count(DISTINCT problem) AS problems, min("time") AS began, max("time") AS "time",
    histogram(status) AS statuses
FROM samples WHERE run = ?
"""
_PROBLEMS: Final = """
WITH chosen AS (SELECT * FROM samples WHERE {where}),
steps AS (SELECT problem, step, avg(acc) AS acc FROM chosen GROUP BY problem, step),
ends AS (SELECT problem, arg_max(acc, step) - arg_min(acc, step) AS change
         FROM steps GROUP BY problem)
SELECT problem, any_value(source) AS source, count(*) AS samples, avg(acc) AS acc, avg(ncr) AS ncr,
    avg(ncr) FILTER (acc = 1) AS ncr_right, avg(ncr) FILTER (acc = 0) AS ncr_wrong,
    avg(score) AS reward, any_value(change) AS change
FROM chosen JOIN ends USING (problem) GROUP BY problem
"""
_SIDE: Final = """
SELECT count(*) AS samples, count(DISTINCT problem) AS problems, avg(acc) AS acc, avg(ncr) AS ncr,
    avg(ncr) FILTER (acc = 0) AS ncr_wrong, avg(score) AS reward,
    avg((guard < 1)::INTEGER) AS guarded, avg(num_tokens) AS tokens,
    list(DISTINCT dataset) AS datasets
FROM samples WHERE {where}
"""
_COMPARED: Final = """
WITH a AS (SELECT problem, count(*) AS samples, avg(acc) AS acc, avg(ncr) AS ncr,
    avg(score) AS reward FROM samples WHERE {a} GROUP BY 1),
b AS (SELECT problem, count(*) AS samples, avg(acc) AS acc, avg(ncr) AS ncr,
    avg(score) AS reward FROM samples WHERE {b} GROUP BY 1)
SELECT coalesce(a.problem, b.problem) AS problem,
    a.samples AS a_samples, a.acc AS a_acc, a.ncr AS a_ncr, a.reward AS a_reward,
    b.samples AS b_samples, b.acc AS b_acc, b.ncr AS b_ncr, b.reward AS b_reward,
    b.acc - a.acc AS acc, b.ncr - a.ncr AS ncr, b.reward - a.reward AS reward,
    CASE WHEN b.samples IS NULL THEN 'only_a' WHEN a.samples IS NULL THEN 'only_b'
        WHEN b.acc - a.acc > {equal} THEN 'better' WHEN a.acc - b.acc > {equal} THEN 'worse'
        WHEN b.acc - a.acc IS NOT NULL THEN 'same' END AS change
FROM a FULL JOIN b ON a.problem = b.problem
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
        datasets: by digest.
    """

    def __init__(self, store: Store, datasets: Sequence[Path] = ()) -> None:
        self._store = store
        self._faults = dict.fromkeys(datasets, "")
        folders = [run.source.run for run in store.runs if isinstance(run.source, LogSource)]
        self.datasets = Datasets(folders)
        self._scoring = threading.Lock()
        self._verifier = AnswerVerifier()
        self._loading = threading.Thread(target=self._load, name="watch-datasets", daemon=True)
        self._loading.start()

    @contextmanager
    def now(self) -> Iterator[Documents]:
        """Open the documents of this moment until the block is left."""
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
        """End the processes that compare answers, and reading datasets if that is soon done."""
        self._verifier.close()
        self._loading.join(CLOSE_S)

    @property
    def loading(self) -> bool:
        """Whether given datasets are still being read."""
        return self._loading.is_alive()

    def left_out(self) -> list[str]:
        """Return sentences about given datasets that cannot be read."""
        return [f"{path}: {fault}" for path, fault in self._faults.items() if fault]

    def explain(self, row: Row) -> Explanation | str:
        """Score a row again and explain its score, or return why that cannot be done."""
        options = ScoreOptions() if row["reward_spec"] is None else None
        try:
            with self._scoring:
                found = explain_row(row, self.datasets, self._verifier, options)
        except (ConsensusPRError, ValueError) as error:
            return f"it cannot be scored again: {error}"
        return found.value if isinstance(found, Unscored) else found

    def _load(self) -> None:
        """Read the given datasets, beside whatever is asked."""
        for path in self._faults:
            try:
                self._store.add_problems(
                    (problem.problem_id, problem.problem, problem.ground_truth, problem.data_source)
                    for problem, _ in read_problem_rows(path)
                )
                index = self.datasets.add(path)
                self._store.assumed = self._store.assumed or index.digest
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
            InputError: a parameter is out of its limits.
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
            "formulas": self._formulas(run),
        }

    def _formulas(self, run: Run) -> list[list[str]]:
        """Return the reward formulas of a run, each as the log has it and in words."""
        sql = (
            "SELECT formula, count(*) AS n FROM samples WHERE run = ? AND formula IS NOT NULL"
            f" GROUP BY 1 ORDER BY n DESC, 1 LIMIT {MAX_NAMES}"
        )
        counts = {row["formula"]: row["n"] for row in self._now.rows(sql, [run.id])}
        words = mixed_formulas(counts)
        if len(counts) == 1:
            reward = _reward_of({"reward_spec": next(iter(counts))})
            words = ["" if reward is None else reward.formula(None)]
        return [list(pair) for pair in zip(counts, words, strict=True)]

    def curves(self, query: Query) -> Document:
        """Return the curves of some runs: a point for each step, or for neighbouring ones."""
        wanted = self._filter(query, ("run", "step", "split", "source", "model", "formula"))
        where, values = self._now.where(wanted)

        def points(most: int) -> list[Row]:
            found = self._now.table(_CURVES.format(where=where, points=most), values)
            rows: list[Row] = found.to_pylist(maps_as_pydicts="strict")
            return rows

        curves, tenths = points(MAX_POINTS), points(TENTHS)
        runs = []
        for number in wanted.runs or range(len(self._now.runs)):
            mine = [point for point in curves if point["run"] == number]
            parts = [one for one in tenths if one["run"] == number and one["x"] is not None]
            with_step = [point for point in mine if point["x"] is not None]
            total = [{name: p[name] for name in _CURVE} for p in mine if p["x"] is None]
            runs.append(
                {
                    "run": number,
                    **{n: [point[n] for point in with_step] for n in ("x", "first", *_CURVE)},
                    "without_step": sum(point["samples"] for point in total),
                    "total": total,
                    "ends": parts if len(parts) < 2 else [parts[0], parts[-1]],
                }
            )
        return {"revision": self._now.revision, "runs": runs}

    def groups(self, query: Query) -> Document:
        """Return samples added up by model, by source, by answer and nodes, and by reward."""
        wanted = self._filter(query, ("run", "step", "split", "source", "model", "formula"))
        where, values = self._now.where(wanted)
        tables = {"groups": _GROUPS, "kinds": _KINDS, "rewards": _REWARDS}
        return {
            "revision": self._now.revision,
            **{
                name: self._now.table(sql.format(where=where), values).to_pylist()
                for name, sql in tables.items()
            },
        }

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
        return self._sample(light, row, whole == "1")

    def _sample(self, light: Row, row: Row, whole: bool) -> Document:
        text, digest = row["response"], row["dataset_digest"]
        found = self._views.explain(row)
        explained = None if isinstance(found, str) else found
        if explained is None:
            letters = light["channels"] or ""
            known = self._nodes(light["problem"], digest, len(letters))[: len(letters)]
            nodes = [
                _node(at, node) | {"matched": letter != "-", "channel": _CHANNEL_OF.get(letter)}
                for at, (node, letter) in enumerate(zip(known, letters, strict=True))
            ]
        else:
            nodes = [
                _explained_node(at, node, text or "") for at, node in enumerate(explained.nodes)
            ]
        problem = self._problem(light["problem"], digest)
        problem["ground_truth"] = row["ground_truth"] or problem["ground_truth"]
        guard = None if explained is None else explained.guard
        reward = _reward_of(row)
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
            "answer": _answer(light, explained, problem["ground_truth"]),
            "guard": None if guard is None else asdict(guard),
            "formula": None if reward is None else reward.formula(row["epoch"] or 0),
            "terms": _terms(light, reward, row["epoch"] or 0),
            "differs": None if explained is None else _differs(light, explained, reward),
            "identity": {name: row[name] for name in _IDENTITY}
            | {"reward_spec": None if reward is None else asdict(reward)},
            "other": json.loads(row[OTHER] or "{}", parse_constant=lambda _: None),
        }

    def _nodes(
        self, problem_id: str, digest: str | None, at_least: int = 0
    ) -> Sequence[Node | None]:
        """Return the nodes of a problem, as many None if fewer are known than samples have."""
        index = self._views.datasets.of(digest)
        entry = None if isinstance(index, Unscored) else index.entry(problem_id)
        known = () if entry is None else entry.nodes
        return known if len(known) >= at_least else [None] * at_least

    def _problem(self, problem_id: str, digest: str | None) -> Document:
        known = self._now.problem(problem_id)
        index = self._views.datasets.of(digest)
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
        given = dict(query)
        if not ({"group", "problem"} & set(given)):
            raise InputError("name the group or the problem: ?group=ID, or ?step=N&problem=ID")
        if "group" not in given:
            # Without an id, a group is the samples of a prompt that have all else in common.
            absent = (name for name in ("step", "split", "model") if not given.get(name))
            wanted = wanted.equal(dict.fromkeys(absent))
        wanted = replace(wanted, runs=(number,), limit=MAX_GROUP, sort=wanted.sort or "score")
        rows = self._now.page(wanted)
        if not rows:
            raise LookupError(f"run {number} has no such group")
        problem_id, digest = rows[0]["problem"], self._now.dataset_of(rows[0])
        digests = {self._now.dataset_of(row) for row in rows}
        nodes: list[Document] = []
        if len(digests) == len({row["problem"] for row in rows}) == 1:
            nodes = self._reached_nodes(problem_id, digest, [row | {"n": 1} for row in rows])
        where, values = self._now.where(wanted)
        # The differences that a trainer learns from, over all samples.
        [reward] = self._now.rows(
            "SELECT avg(score) AS mean, stddev_pop(score) AS std, min(score) AS lowest,"
            " max(score) AS highest, count(DISTINCT round(score / ?)) AS distinct"
            f" FROM samples WHERE {where}",
            [_EQUAL, *values],
        )
        spread = None if reward["mean"] is None else reward["highest"] - reward["lowest"]
        return {
            "run": number,
            **{name: rows[0][name] for name in _GROUP if name != "problem"},
            "problem": self._problem(problem_id, digest),
            "total": self._now.count(wanted),
            "rows": rows,
            "nodes": nodes,
            "datasets": len(digests),
            "reward": reward | {"no_gradient": None if spread is None else spread <= _EQUAL},
        }

    def _reached_nodes(
        self, problem_id: str, digest: str | None, counts: Sequence[Row]
    ) -> list[Document]:
        """Return the nodes of a problem, each with how many right and wrong samples reached it."""
        width = max((len(row["channels"] or "") for row in counts), default=0)
        known = self._nodes(problem_id, digest, width)
        reached = _reached(counts, len(known))
        return [
            _node(at, node) | {"by_right": reached["by_right"][at], "by_wrong": of_wrong}
            for at, (node, of_wrong) in enumerate(zip(known, reached["by_wrong"], strict=True))
        ]

    # Problems

    def problems(self, query: Query) -> Document:
        """Return a page of problems."""
        [sort, named], remaining = _taken(query, "sort", "q")
        sort = choice("sort", {"sort": sort}, PROBLEM_SORTS) or "samples"
        wanted = self._filter(remaining, _CHOSEN)
        where, values = self._now.where(wanted)
        found = self._now.table(_PROBLEMS.format(where=where), values)
        page = _table_page(self._now.named(found, named), wanted, sort)
        texts = self._now.beginnings([row["problem"] for row in page["rows"]])
        for row in page["rows"]:
            row["text"] = texts.get(row["problem"])
        return {
            "revision": self._now.revision,
            **page,
            "searched": found.num_rows if named else None,
        }

    def problem(self, run: str, problem_id: str, query: Query) -> Document:
        """Return a problem: its nodes, and how often each was reached over the steps."""
        number = self._run(run).id
        wanted = Filter.of(query, [n for n in _CHOSEN if n not in ("run", "problem", *_PAGE)])
        wanted = replace(wanted.equal({"problem": problem_id}), runs=(number,), limit=12)
        where, values = self._now.where(replace(wanted, dataset=None))
        # The newest dataset first.
        datasets: Counter[str | None] = Counter()
        for row in self._now.rows(
            f"SELECT dataset, count(*) AS n FROM samples WHERE {where} GROUP BY 1"
            ' ORDER BY max("time") DESC NULLS LAST',
            values,
        ):
            datasets[self._now.dataset_of(row)] += row["n"]
        # Nodes of another dataset are other nodes, whatever their problem is called.
        digest = wanted.dataset or next(iter(datasets), None)
        wanted = replace(wanted, dataset=digest)
        where, values = self._now.where(wanted)
        counts = self._now.rows(
            "SELECT step, acc, channels, count(*) AS n, sum(ncr) AS ncr, count(ncr) AS with_ncr"
            f" FROM samples WHERE {where} GROUP BY 1, 2, 3 ORDER BY 1",
            values,
        )
        if not counts:
            raise LookupError(f"run {number} has no sample of problem {one_line(problem_id)!r}")
        nodes = self._reached_nodes(problem_id, digest, counts)
        reached = _reached(counts, 0)
        return {
            "run": number,
            "problem": self._problem(problem_id, digest),
            "dataset": digest,
            "datasets": [{"digest": name, "samples": n} for name, n in datasets.items()],
            "samples": sum(row["n"] for row in counts),
            "right": reached["right"],
            "wrong": reached["wrong"],
            "nodes": nodes,
            "history": _history(counts, len(nodes)),
            "best": self._now.page(replace(wanted, sort="score")),
        }

    # Two sides

    def compare(self, query: Query) -> Document:
        """Return the differences of two sides: a page of problems."""
        [change, sort, named], remaining = _taken(query, "change", "sort", "q")
        given = {"change": change, "sort": sort}
        change = choice("change", given, CHANGES) or ""
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
        conditions = {side: self._now.where(Filter.of(q)) for side, q in sides.items()}
        (a, a_values), (b, b_values) = conditions.values()
        sql = _COMPARED.format(a=a, b=b, equal=_EQUAL)
        found = self._now.table(sql, [*a_values, *b_values])
        counts = {
            row["values"]: row["counts"] for row in found["change"].value_counts().to_pylist()
        }
        of_change = found.filter(pc.equal(found["change"], change)) if change else found
        return {
            "revision": self._now.revision,
            "sides": {side: self._side(*condition) for side, condition in conditions.items()},
            "counts": {name: counts.get(name, 0) for name in CHANGES},
            "differences": {name: _difference(found, name) for name in ("acc", "ncr", "reward")},
            **_table_page(self._now.named(of_change, named), wanted, sort),
            "searched": of_change.num_rows if named else None,
        }

    def _side(self, where: str, values: Sequence[Any]) -> Document:
        [sums] = self._now.rows(_SIDE.format(where=where), values)
        digests = {self._now.dataset_of({"dataset": found}) for found in sums["datasets"] or ()}
        return sums | {"datasets": sorted(digest for digest in digests if digest is not None)}

    # Datasets

    def datasets(self, query: Query = ()) -> Document:
        """Return the datasets that scored, and those that were given."""
        Filter.of(query, ())
        given = {**self._views.datasets.given}
        rows: dict[str, Document] = {}
        used = self._now.rows(
            "SELECT dataset, any_value(dataset_name) AS name, count(*) AS n,"
            " list(DISTINCT run) AS runs FROM samples GROUP BY 1"
        )
        unused: list[Row] = [
            {"dataset": digest, "name": None, "n": 0, "runs": []} for digest in given
        ]
        for found in [*unused, *used]:
            digest = self._now.dataset_of(found)
            if digest is None:
                continue
            index = self._views.datasets.of(digest)
            known = None if isinstance(index, Unscored) else index
            row = rows.setdefault(
                digest,
                {
                    "digest": digest,
                    "name": None,
                    "file": given[digest].name if digest in given else None,
                    "problems": None if known is None else len(known),
                    "nodes": None if known is None else known.info.num_nodes,
                    "samples": 0,
                    "runs": [],
                    "browsable": known is not None,
                    "reviewable": known is not None and digest in given,
                    "why": str(index) if known is None else None,
                },
            )
            row["samples"] += found["n"]
            row["runs"] = sorted({*row["runs"], *found["runs"]})
            row["name"] = row["name"] or found["name"]
        return {"revision": self._now.revision, "rows": list(rows.values())}

    def dataset(self, digest: str, query: Query) -> Document:
        """Return a page of a dataset's problems, with the rates of their nodes."""
        [sort, named], remaining = _taken(query, "sort", "q")
        choice("sort", {"sort": sort}, ("gap",))
        wanted = self._filter(remaining, [name for name in _CHOSEN if name != "problem"])
        index, row = self._index(digest)
        where, values = self._now.where(replace(wanted, dataset=digest))
        ids: Sequence[str] = index.problem_ids()
        searched = len(ids) if named else None
        if named:
            ids = self._now.named(pa.table({"problem": ids}), named)["problem"].to_pylist()
        elif sort:
            order = self._now.table(_GAPS.format(where=where), values)["problem"].to_pylist()
            ids = [problem for problem in order if problem in index]
        shown = ids[wanted.offset : wanted.offset + wanted.limit]
        counts: dict[str, list[Row]] = {problem_id: [] for problem_id in shown}
        for count in self._now.rows(
            f"SELECT problem, acc, channels, count(*) AS n FROM samples WHERE {where}"
            " AND problem IN (SELECT unnest(?)) GROUP BY 1, 2, 3",
            [*values, shown],
        ):
            counts[count["problem"]].append(count)
        return {
            "digest": digest,
            "file": row["file"],
            "reviewable": row["reviewable"],
            "total": len(ids),
            "searched": searched,
            "offset": wanted.offset,
            "rows": [
                {
                    **self._problem(problem_id, digest),
                    "samples": sum(count["n"] for count in of_problem),
                    **{name: _reached(of_problem, 0)[name] for name in ("right", "wrong")},
                    "nodes": self._reached_nodes(problem_id, digest, of_problem),
                }
                for problem_id, of_problem in counts.items()
            ],
        }

    def _index(self, digest: str) -> tuple[DatasetIndex, Document]:
        """Return a dataset and its row among all."""
        for row in self.datasets()["rows"]:
            if row["digest"] == digest:
                index = self._views.datasets.of(digest)
                if isinstance(index, Unscored):
                    raise LookupError(f"dataset {digest}: {index}")
                return index, row
        raise LookupError(f"there is no dataset {one_line(digest, 80)!r} here")

    def review(self, digest: str, dropped: object) -> Document:
        """Write a new dataset file without some nodes, beside the given one.

        Args:
            digest: of a dataset that was given as a file.
            dropped: pairs of problem id and number of the node, from 0.

        Raises:
            InputError: a pair names no node, or the file cannot be written.
            LookupError: there is no such dataset.
        """
        index, _ = self._index(digest)
        file = self._views.datasets.given.get(digest)
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
            yield made(asked, "groups")
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
            both = {
                side if name == "run" else f"{side}_{name}": value
                for side, asked in (("a", a), ("b", b))
                for name, value in asked.items()
            }
            for look in COMPARED_LOOKS:
                yield made({**both, **look}, "compare")
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
            groups.setdefault((row["run"], *_group_of(row).items()), []).append(row)
        done = 0
        for (run_id, *values), some in groups.items():
            wholes = self._now.wholes(self._now.run(run_id), [row["key"] for row in some])
            for row in some:
                yield f"sample/{run_id}/{row['key']}", self._sample(row, wholes[row["key"]], True)
            asked = {name: str(value) for name, value in values if value is not None}
            yield _named(asked, "group", str(run_id)), self.group(str(run_id), [*asked.items()])
            done += len(some)
            progress(done)


# The documents by name: what makes each, and the number of parts of its path behind the name.
_MAKERS: Final[dict[str, tuple[Callable[..., Document], int]]] = {
    "state": (Documents.state, 0),
    "curves": (Documents.curves, 0),
    "groups": (Documents.groups, 0),
    "samples": (Documents.samples, 0),
    "sample": (Documents.sample, 2),
    "group": (Documents.group, 1),
    "problems": (Documents.problems, 0),
    "problem": (Documents.problem, 2),
    "compare": (Documents.compare, 0),
    "datasets": (Documents.datasets, 0),
    "dataset": (Documents.dataset, 1),
}


def _taken(query: Query, *names: str) -> tuple[list[str], Query]:
    """Return the values of some parameters, "" if one is not given, and the other parameters."""
    found = []
    for name in names:
        values = [value for key, value in query if key == name]
        if len(values) > 1 or len("".join(values)) > MAX_CHARS:
            raise InputError(f"{name} is given once, with at most {MAX_CHARS} characters")
        found.append("".join(values))
    return found, [(key, value) for key, value in query if key not in names]


def _reached(counts: Iterable[Row], width: int) -> Document:
    """Return the numbers of right and wrong samples, and how many of them reached each node.

    Args:
        counts: rows with ``acc``, ``channels`` and their number ``n``.
        width: number of the nodes.
    """
    right = wrong = 0
    by_node: Counter[tuple[int, bool]] = Counter()
    for row in counts:
        if row["acc"] is None:
            continue
        is_right = row["acc"] == 1
        right += row["n"] if is_right else 0
        wrong += 0 if is_right else row["n"]
        for at, letter in enumerate(row["channels"] or ""):
            if letter != "-":
                by_node[at, is_right] += row["n"]
    return {
        "right": right,
        "wrong": wrong,
        "by_right": [by_node[at, True] for at in range(width)],
        "by_wrong": [by_node[at, False] for at in range(width)],
    }


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
    """Return the sides of a page to keep: its runs, else its models, else both ends of its run."""
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


def _named(asked: Mapping[str, str], *path: str) -> str:
    """Return the name of a document, as the page's script makes it (encodeURIComponent)."""
    name = "/".join(quote(part, safe="!*'()", errors="replace") for part in path)
    pairs = [[key, asked[key]] for key in sorted(asked)]
    return (
        f"{name}?{json.dumps(pairs, ensure_ascii=False, separators=(',', ':'))}" if pairs else name
    )


def _reward_of(row: Row) -> RewardSpec | None:
    """Return the reward that a sample was scored with, None if it is not known here."""
    with contextlib.suppress(InputError):
        return None if row["reward_spec"] is None else read_reward(row["reward_spec"])
    return None


def _node(at: int, node: Node | NodeExplanation | None) -> Document:
    return {
        "number": at,
        "id": None if node is None else node.node_id,
        "label": (node.label or None) if node else None,
        "is_final": None if node is None else node.is_final,
        "expressions": [] if node is None else list(node.expressions),
    }


def _explained_node(at: int, node: NodeExplanation, text: str) -> Document:
    return _node(at, node) | {
        "counts": node.counts,
        "matched": node.matched,
        "channel": node.channel or None,
        "span": None if node.span is None else list(node.span),
        "expression": node.expression or None,
        "words": words_found(text, node.span, node.expression) or None,
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


def _answer(light: Row, explained: Explanation | None, truth: str | None) -> Document:
    """Return the answer, the ground truth, and a sentence about their equality."""
    answer = light["answer"]
    if answer is None and explained is not None:
        answer = explained.score.answer
    if light["status"] == Status.ANSWER_UNDECIDED:
        why = f"Their equality is undecided ({light['answer_method']}), so it counts as wrong."
    elif light["acc"] is None:
        why = light["message"] or "It is not known whether it is right."
    else:
        why = f"It counts as {'right' if light['acc'] else 'wrong'}."
    return {"found": answer, "truth": truth, "why": why}


def _terms(light: Row, spec: RewardSpec | None, epoch: int) -> list[Document]:
    """Return the terms of a reward: name, value, and what each adds, None if not known."""
    if light["reward"] is None:
        return []
    acc, ncr, penalty = light["acc"], light["ncr"], light["penalty"]
    added: dict[str, float | None] = {"acc": None, "ncr": None}
    if spec is not None:
        added.update(spec.terms(acc or 0.0, ncr or 0.0, epoch))
    terms = [
        {"name": name, "value": value, "adds": added[name]}
        for name, value in (("acc", acc), ("ncr", ncr))
    ]
    return [*terms, {"name": "penalty", "value": penalty, "adds": penalty}] if penalty else terms


def _differs(light: Row, explained: Explanation, spec: RewardSpec | None) -> str | None:
    """Return a sentence if the score of today differs from the logged one."""
    score = explained.score
    now = {"status": score.status.value, "acc": score.acc, "ncr": score.ncr}
    if light["reward"] is not None and spec is not None:
        now["reward"] = score.reward
    changes = []
    for name, value in now.items():
        logged = light[name]
        numbers = isinstance(logged, float) and isinstance(value, float)
        if abs(logged - value) > _EQUAL if numbers else logged != value:
            changes.append(f"{name} was {logged} and is {value}")
    return f"Scored again, the result differs: {', '.join(changes)}." if changes else None


def _group_of(row: Row) -> Row:
    """Return the values that the samples of a sample's group have in common."""
    names = [name for name in _GROUP if name != "problem" or row["group"] is None]
    return {name: row[name] for name in names}


def _table_page(table: pa.Table, wanted: Filter, sort: str) -> Document:
    """Return a page of problems in order, those without a value last."""
    keys = [(sort, "descending" if wanted.desc else "ascending"), ("problem", "ascending")]
    order = pc.sort_indices(table, keys)
    rows = table.take(order.slice(wanted.offset, wanted.limit)).to_pylist()
    return {"total": table.num_rows, "offset": wanted.offset, "rows": rows}


def _difference(table: pa.Table, name: str) -> Document:
    """Return the mean difference over what both sides have, and its standard error."""
    values = table.column(name).drop_null().to_numpy()
    error = float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else None
    return {
        "mean": float(values.mean()) if len(values) else None,
        "error": error,
        "count": len(values),
    }


def _history(counts: Sequence[Row], width: int) -> Document:
    """Return, over the steps, how often each node was reached by right and by wrong samples."""
    with_step = [row for row in counts if row["step"] is not None]
    steps = sorted({row["step"] for row in with_step})
    size = max(1, -(-len(steps) // MAX_HISTORY))
    place = {step: at // size for at, step in enumerate(steps)}
    points = []
    for _, some in itertools.groupby(with_step, lambda row: place[row["step"]]):
        rows = list(some)
        with_ncr = sum(row["with_ncr"] for row in rows)
        ncr = sum(row["ncr"] or 0.0 for row in rows) / with_ncr if with_ncr else None
        ends = {"x": rows[-1]["step"], "first": rows[0]["step"], "ncr": ncr}
        points.append({**ends, **_reached(rows, width)})
    names = ("x", "first", "right", "wrong", "ncr")
    return {
        **{name: [point[name] for point in points] for name in names},
        "nodes": [
            {side: [point[side][at] for point in points] for side in ("by_right", "by_wrong")}
            for at in range(width)
        ],
    }


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
