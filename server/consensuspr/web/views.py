"""The documents that the page shows, as plain JSON values: one function for each.

What is not known is None, never 0.  Nodes and their numbers count from 0.  What a sample's text,
nodes and reward mean is worked out by the code that scored it, with the dataset that the run keeps
or that was given.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from consensuspr.score_log.curves import FIGURES, CurvePoint, coarsen
from consensuspr.score_log.replay import Datasets, Unscored, options_of, rollout_of
from consensuspr.score_log.schema import read_reward
from consensuspr.scoring import AnswerVerifier, DatasetIndex, Scorer
from consensuspr.scoring.marks import Mark, cut_at_marks, parts_to_show
from consensuspr.scoring.rewards import RewardSpec
from consensuspr.scoring.types import Explanation, Rollout, ScoreOptions, Status
from consensuspr.version import VERSION
from consensuspr.web.figures import PageReport, document
from consensuspr.web.sources import OTHER, LogSource
from consensuspr.web.store import (
    FLAGS,
    KINDS,
    MAX_CHARS,
    MAX_OFFSET,
    SORTS,
    VERDICTS,
    Filter,
    Moment,
    Row,
    Run,
    Store,
)

Document: TypeAlias = dict[str, Any]

MAX_POINTS: Final = 400
# Steps of a problem's history.
MAX_HISTORY: Final = 60
# Different splits, sources and models that are offered.
MAX_NAMES: Final = 200
MAX_GROUP: Final = 256
# Of a sample, in its group.
MAX_NEIGHBOURS: Final = 64
# Runs or models that a page to keep compares with each other.
MAX_SIDES: Final = 6
# Of a response; of a longer one its beginning, its end and what is around each hit.
WHOLE_CHARS: Final = 100_000
# Nodes that one review may drop.
MAX_DROPPED: Final = 100_000
# For a dataset that is being read when all ends; a large one may take minutes.
CLOSE_S: Final = 5.0
# Rewards nearer than this are the same to a trainer, which compares them in single precision.
_EQUAL: Final = 1e-6

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
# Of the differences in Acc: no change, and as many equal parts on each side of it.
CHANGE_PARTS: Final = 4


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
        self._files = dict.fromkeys(datasets, "")
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

    def curves(self, wanted: Filter) -> Document:
        """Return the curves of some runs, all of one moment."""
        revision, runs = self._store.curves(wanted)
        return {
            "revision": revision,
            "figures": ["samples", *FIGURES],
            "runs": [
                {"run": run.id, **_columns(coarsen(points, MAX_POINTS))} for run, points in runs
            ],
        }

    def wait(self) -> None:
        """Wait until the given datasets are read.

        Raises:
            InputError: one cannot be.
        """
        self._loading.join()
        for path, why in self._files.items():
            if why:
                raise InputError(f"{path}: {why}")

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
        return [f"{path}: {why}" for path, why in self._files.items() if why]

    def index(self, digest: str | None) -> DatasetIndex | Unscored:
        """Return the dataset of a digest; where none is known, one that was given."""
        with self._lock:
            if digest is None:
                digest = next(iter(self.given), None)
            return Unscored.NO_DATASET if digest is None else self._datasets.of(digest)

    def explain(self, index: DatasetIndex, rollout: Rollout, options: ScoreOptions) -> Explanation:
        """Score a rollout again, and say why it gets what it gets."""
        with self._scoring:
            return Scorer({"default": index}, verifier=self._verifier).explain(rollout, options)

    def _load(self) -> None:
        """Read the given datasets, beside whatever is asked."""
        for path in self._files:
            try:
                self._store.add_problems(
                    (problem.problem_id, problem.problem, problem.ground_truth, problem.data_source)
                    for problem, _ in read_problem_rows(path)
                )
                index = self._datasets.add(path)
                self.given[index.digest] = path
                self._store.assumed = next(iter(self.given))
            except ConsensusPRError as error:
                self._files[path] = str(error)
        self._store.changed()


class Documents:
    """The documents of one moment."""

    def __init__(self, views: Views, moment: Moment) -> None:
        self._views = views
        self._now = moment

    # What there is

    def state(self) -> Document:
        """Return runs and how far they are read."""
        return {
            "version": VERSION,
            "revision": self._now.revision,
            "runs": [self._run(run) for run in self._now.runs],
            "datasets_loading": self._views.loading,
            "left_out": self._views.left_out(),
            "kinds": ["suspicious", *FLAGS],
            "sorts": list(SORTS),
        }

    def _run(self, run: Run) -> Document:
        told: Document = {
            "id": run.id,
            "name": run.source.name,
            "kind": run.source.kind,
            "path": str(run.source.path),
            "growing": run.source.grows,
            "read": 1.0 if run.whole else min(0.99, run.source.read_share()),
            "left_out": run.left_out(),
        }
        figures: Document = self._now.remembered(("run", run.id), lambda: self._run_figures(run))
        return told | figures

    def _run_figures(self, run: Run) -> Document:
        rows = self._now.rows
        [sums] = rows(
            "SELECT count(*) AS samples, min(step) AS first, max(step) AS last,"
            ' count(DISTINCT problem) AS problems, max("time") AS "time"'
            " FROM samples WHERE run = ?",
            [run.id],
        )
        steps = None if sums["first"] is None else [sums["first"], sums["last"]]

        def names(column: str) -> list[str | None]:
            found = rows(
                f'SELECT "{column}" AS name, count(*) AS n FROM samples WHERE run = ? GROUP BY 1'
                " ORDER BY n DESC, name LIMIT ?",
                [run.id, MAX_NAMES],
            )
            return [row["name"] for row in found]

        statuses = rows(
            "SELECT status, count(*) AS n FROM samples WHERE run = ? GROUP BY 1 ORDER BY n DESC",
            [run.id],
        )
        identities = rows(
            'SELECT identity, count(*) AS n, max("time") AS last FROM samples WHERE run = ?'
            " GROUP BY 1 ORDER BY last DESC LIMIT 20",
            [run.id],
        )
        return {
            "samples": sums["samples"],
            "problems": sums["problems"],
            "steps": steps,
            "time": sums["time"],
            "splits": names("split"),
            "sources": names("source"),
            "models": names("model"),
            "diagnoses": names("diagnosis"),
            "statuses": {row["status"]: row["n"] for row in statuses},
            "identities": [
                self._identity(row["identity"]) | {"samples": row["n"]} for row in identities
            ],
        }

    def _identity(self, number: int) -> Document:
        return _told_identity(self._now.identity(number))

    def samples(self, wanted: Filter) -> Document:
        """Return a page of samples."""
        total, rows, search = self._now.samples(wanted)
        return {
            "revision": self._now.revision,
            "total": total,
            "offset": wanted.offset,
            "rows": rows,
            "search": search,
        }

    # A page to keep

    def kept(
        self,
        report: PageReport | None = None,
        progress: Callable[[int], None] = lambda done: None,
    ) -> Iterator[tuple[str, Any]]:
        """Yield the documents of a page to keep, each with what it is asked for by.

        They are those that the links and choices of such a page lead to.  Rows of samples stand
        in the document ``rows`` once; a list of samples has their places there.

        Args:
            report: stands beside the samples.
            progress: called with the number of samples that are done.
        """
        state = self.state()
        for run in state["runs"]:
            # A page travels, and folders are nobody else's concern.
            run |= {"growing": False, "path": Path(run["path"]).name}
        yield "state", state | {"report": report is not None}
        if report is not None:
            yield "report", document(report)
        for chosen in ({}, *_each(state, "split")):
            yield _named("curves", chosen), self._views.curves(Filter.of(chosen.items()))
        rows = self._now.page(Filter(limit=MAX_OFFSET), None)
        yield "rows", rows
        places = {(row["run"], row["key"]): at for at, row in enumerate(rows)}
        problems = dict.fromkeys((row["run"], row["problem"]) for row in rows)
        sides = _sides(state)
        lists = [*LOOKS, *(one for name in CHOICES for one in _each(state, name)), *sides]
        lists += [{"problem": problem} for _, problem in problems]
        lists += [{"run": str(run), "problem": problem} for run, problem in problems]
        lists += [side | {"problem": name} for side in sides for _, name in problems]
        for asked in {_named("samples", asked): asked for asked in lists}.values():
            found = self._now.page(replace(Filter.of(asked.items()), limit=MAX_OFFSET), None)
            at = [places[row["run"], row["key"]] for row in found]
            yield _named("samples", asked), {"total": len(at), "search": None, "places": at}
        yield from self._kept_samples(rows, progress)
        for run_id in range(len(state["runs"])):
            asked = {"run": str(run_id)}
            wanted = replace(Filter.of(asked.items()), limit=MAX_OFFSET)
            yield _named("problems", asked), self.problems(wanted, "samples", named="")
        for run_id, problem in problems:
            path = f"problem/{run_id}/{_component(problem)}"
            told = self.problem(run_id, problem, Filter())
            yield path, told
            for other in told["datasets"]:
                if other["digest"] not in (None, told["dataset"]):
                    asked = {"dataset": other["digest"]}
                    mine = self.problem(run_id, problem, Filter(dataset=other["digest"]))
                    yield _named(path, asked), mine
        for one, other in itertools.permutations(sides, 2):
            pair = {**_on_side("a", one), **_on_side("b", other)}
            for look in COMPARED_LOOKS:
                made = compare_asked([*pair.items(), *look.items()])
                made["wanted"] = replace(made["wanted"], limit=MAX_OFFSET)
                yield _named("compare", pair | look), self.compare(**made)
        known = self.datasets()
        for row in known["rows"]:
            row["reviewable"] = False
        yield "datasets", known
        for digest in (row["digest"] for row in known["rows"] if row["browsable"]):
            for asked in ({}, {"sort": "gap"}):
                whole = Filter(limit=MAX_OFFSET, sort=asked.get("sort"))
                told = self.dataset(digest, whole, named="", problem=None)
                yield _named(f"dataset/{_component(digest)}", asked), told | {"reviewable": False}

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
                told = self._sample(row, wholes[row["key"]], best[:MAX_NEIGHBOURS], True)
                yield f"sample/{run_id}/{row['key']}", told
            pairs = zip(_GROUP, values, strict=True)
            asked = {name: str(value) for name, value in pairs if value is not None}
            yield _named(f"group/{run_id}", asked), self.group(run_id, Filter.of(asked.items()))
            done += len(some)
            progress(done)

    # One sample

    def sample(self, number: int, key: str, whole: bool) -> Document:
        """Return one sample with its text, its nodes and the arithmetic of its reward.

        Raises:
            LookupError: there is none.
            DataError: it cannot be read any more.
        """
        run = self._now.run(number)
        light, row = self._now.sample(run, key)
        return self._sample(light, row, self._now.samples(_group_filter(light))[1], whole)

    def _sample(self, light: Row, row: Row, neighbours: Sequence[Row], whole: bool) -> Document:
        """Return the document of a sample; ``neighbours`` are those of its group."""
        identity = row["identity"]
        explained, why_not = self._explained(row, identity)
        text = row["response"]
        nodes = _nodes_of(explained, light) if explained else self._plain_nodes(row, light)
        digest = identity["dataset_digest"]
        problem = self._problem(light["problem"], digest)
        truth = row["ground_truth"] or problem["ground_truth"]
        return {
            "run": light["run"],
            "key": light["key"],
            "sample": light,
            "text": None if text is None else _pieces(text, explained, whole),
            "text_why": "its text was not kept" if text is None else None,
            "characters": None if text is None else len(text),
            "raw": row.get("response_raw") is not None,
            "nodes": nodes,
            "explained": explained is not None,
            "explained_why": why_not,
            "problem": problem,
            "answer": _answer(light, truth),
            "ncr": _ncr(light, explained),
            "reward": _arithmetic(light, identity, row),
            "differs": None if explained is None else _differs(light, explained),
            "identity": _told_identity(identity),
            "other": json.loads(row[OTHER], parse_constant=lambda _: None)
            if row.get(OTHER)
            else {},
            "neighbours": [{name: one[name] for name in _OF_NEIGHBOURS} for one in neighbours],
        }

    def _explained(self, row: Row, identity: Row) -> tuple[Explanation | None, str | None]:
        index = self._views.index(identity["dataset_digest"])
        rollout = rollout_of(row | {"response_raw": row.get("response_raw")})
        if rollout is None:
            return None, Unscored.NO_TEXT.value
        if isinstance(index, Unscored):
            return None, index.value
        try:
            options = ScoreOptions() if identity["reward_spec"] is None else options_of(row)
            return self._views.explain(index, rollout, options), None
        except (ConsensusPRError, ValueError) as error:
            return None, f"it cannot be scored again: {error}"

    def _plain_nodes(self, row: Row, light: Row) -> list[Document]:
        """Return nodes of a sample that could not be explained: what is known of them."""
        known: Sequence[Node | None] = self._nodes(light["problem"], row.get("dataset_digest"))
        channels = light["channels"] or ""
        if len(known) != len(channels):
            known = [None] * len(channels)
        return [
            _node(at, node) | {"matched": letter != "-", "channel": _CHANNEL_OF.get(letter)}
            for at, (node, letter) in enumerate(zip(known, channels, strict=True))
        ]

    def _nodes(self, problem_id: str, digest: str | None) -> tuple[Node, ...]:
        index = self._views.index(digest)
        entry = None if isinstance(index, Unscored) else index.entry(problem_id)
        return () if entry is None else entry.nodes

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

    # Groups

    def group(self, number: int, wanted: Filter) -> Document:
        """Return the samples of one prompt at one step side by side.

        Raises:
            InputError: neither a group nor a problem is named.
            LookupError: there are none.
        """
        self._now.run(number)
        if not ({"group", "problem"} & set(wanted.texts)):
            raise InputError("name the group or the problem: ?group=ID, or ?step=N&problem=ID")
        wanted = replace(wanted, runs=(number,))
        if "group" not in wanted.texts:
            # Without an id, a group is the samples of a prompt that have all else in common: what
            # is not told is what they do not have.
            texts = {"split": (None,), "model": (None,), **wanted.texts}
            unknown = () if "step" in wanted.ranges else ("step",)
            wanted = replace(wanted, texts=texts, unknown=unknown)
        total, rows, _ = self._now.samples(
            replace(wanted, limit=MAX_GROUP, sort=wanted.sort or "score")
        )
        if not rows:
            raise LookupError(f"run {number} has no such group")
        problem_ids = {row["problem"] for row in rows}
        digests = {self._now.dataset_of(row["identity"]) for row in rows}
        problem_id = rows[0]["problem"]
        digest = self._now.dataset_of(rows[0]["identity"])
        nodes: list[Document] = []
        if len(problem_ids) == len(digests) == 1:
            nodes = self._nodes_beside(problem_id, digest, rows)
        return {
            "run": number,
            **{name: rows[0][name] for name in _GROUP if name != "problem"},
            "problem": self._problem(problem_id, digest),
            "total": total,
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

    def _nodes_beside(
        self, problem_id: str, digest: str | None, rows: Sequence[Row]
    ) -> list[Document]:
        """Return the nodes of a problem, each with how many right and wrong samples reached it."""
        known: Sequence[Node | None] = self._nodes(problem_id, digest)
        width = max((len(row["channels"] or "") for row in rows), default=0)
        if len(known) < width:
            known = [None] * width
        reached = _Reached.of((row["acc"], row["channels"] or "", 1) for row in rows)
        return [_node(at, node) | reached.at(at) for at, node in enumerate(known)]

    def _datasets_of(self, wanted: Filter) -> dict[str | None, int]:
        """Return how many samples each dataset scored, by its digest; the newest one first."""
        where, values = self._now.condition(replace(wanted, dataset=None))
        found = self._now.rows(
            f"SELECT identity, count(*) AS n FROM samples WHERE {where} GROUP BY 1"
            ' ORDER BY max("time") DESC NULLS LAST, identity DESC',
            values,
        )
        counts: Counter[str | None] = Counter()
        for row in found:
            counts[self._now.dataset_of(row["identity"])] += row["n"]
        return dict(counts)

    # Problems

    def problems(self, wanted: Filter, sort: str, *, named: str) -> Document:
        """Return a page of problems.

        Args:
            wanted: samples that count.
            sort: one of :data:`PROBLEM_SORTS`.
            named: part of an id that is looked for.
        """
        where, values = self._now.condition(wanted)
        found = self._now.remembered(
            ("problems", where, repr(values)),
            lambda: self._now.table(_PROBLEMS.format(where=where), values),
        )
        return {"revision": self._now.revision, **_table_page(found, wanted, sort, named)}

    def problem(self, number: int, problem_id: str, wanted: Filter) -> Document:
        """Return a problem: its nodes, and how often each was reached over the steps.

        Raises:
            LookupError: the run has no sample of it.
        """
        run = self._now.run(number)
        mine = replace(
            wanted, runs=(number,), texts={**wanted.texts, "problem": (problem_id,)}, q=""
        )
        datasets = self._datasets_of(mine)
        # Nodes of another dataset are other nodes, whatever their problem is called.
        digest = wanted.dataset or next(iter(datasets), None)
        mine = replace(mine, dataset=digest)
        where, values = self._now.condition(mine)
        counts = self._now.rows(
            "SELECT step, acc, channels, count(*) AS n, sum(ncr) AS ncr, sum(score) AS score,"
            " count(ncr) AS with_ncr, count(score) AS with_score"
            f" FROM samples WHERE {where} GROUP BY 1, 2, 3 ORDER BY 1",
            values,
        )
        if not counts:
            raise LookupError(f"run {run.id} has no sample of problem {one_line(problem_id)!r}")
        known: Sequence[Node | None] = self._nodes(problem_id, digest)
        width = max(len(known), *(len(row["channels"] or "") for row in counts))
        if len(known) < width:
            known = [None] * width
        whole = _Reached.of((row["acc"], row["channels"] or "", row["n"]) for row in counts)
        pages = {
            "newest": replace(mine, limit=10),
            "best": replace(mine, limit=10, sort="score"),
            "worst": replace(mine, limit=10, sort="score", desc=False),
        }
        return {
            "run": number,
            "problem": self._problem(problem_id, digest),
            "dataset": digest,
            "datasets": [{"digest": one, "samples": n} for one, n in datasets.items()],
            "samples": sum(row["n"] for row in counts),
            "right": whole.rights,
            "wrong": whole.wrongs,
            "nodes": [_node(at, node) | whole.at(at) for at, node in enumerate(known)],
            "history": _history(counts, width),
            **{name: self._now.samples(page)[1] for name, page in pages.items()},
        }

    # Two sides

    def compare(
        self,
        one: Filter,
        other: Filter,
        wanted: Filter,
        *,
        by: str,
        change: str,
        sort: str,
        named: str,
    ) -> Document:
        """Return what is otherwise on another side: a page of problems, or of prompts at a step.

        Args:
            one, other: samples of each side.
            wanted: which page.
            by: one of :data:`COMPARED_BY`.
            change: one of :data:`CHANGES`, for these alone; "": all.
            sort: one of :data:`COMPARED_SORTS`.
            named: part of an id that is looked for.
        """
        wheres, values = zip(*(self._now.condition(side) for side in (one, other)), strict=True)
        together = [*values[0], *values[1]]
        same = "" if by == "problem" else " AND one.step = other.step"
        sql = _COMPARED.format(
            one=wheres[0], other=wheres[1], same=same,
            step="NULL::BIGINT" if by == "problem" else "step",
        )  # fmt: skip
        key = ("compare", by, wheres, repr(together))
        found: pa.Table = self._now.remembered(key, lambda: self._now.table(sql, together))
        chosen = found.filter(_CHANGED[change](found)) if change else found
        return {
            "revision": self._now.revision,
            "sides": {
                name: self._side(*side)
                for name, side in zip("ab", zip(wheres, values, strict=True), strict=True)
            },
            "counts": {name: pc.sum(rule(found)).as_py() or 0 for name, rule in _CHANGED.items()},
            "differences": {name: _difference(found, name) for name in ("acc", "ncr", "reward")},
            "parts": _parts(found),
            **_table_page(chosen, wanted, sort, named),
        }

    def _side(self, where: str, values: Sequence[Any]) -> Document:
        [sums] = self._now.rows(_SIDE.format(where=where), values)
        identities = self._now.rows(f"SELECT DISTINCT identity FROM samples WHERE {where}", values)
        datasets = {self._now.dataset_of(row["identity"]) for row in identities}
        return sums | {"datasets": sorted(one for one in datasets if one is not None)}

    # Datasets

    def datasets(self) -> Document:
        """Return the datasets that scored, and those that were given."""
        where, values = self._now.condition(Filter())
        used = self._now.rows(
            "SELECT identity, count(*) AS n, list(DISTINCT run) AS runs FROM samples"
            f" WHERE {where} GROUP BY 1",
            values,
        )
        samples: Counter[str] = Counter()
        names: dict[str, str | None] = {}
        runs: dict[str, set[int]] = {}
        identities: dict[str, list[int]] = {}
        for row in used:
            digest = self._now.dataset_of(row["identity"])
            if digest is not None:
                samples[digest] += row["n"]
                identities.setdefault(digest, []).append(row["identity"])
                named = self._now.identity(row["identity"])["dataset"]
                names[digest] = names.get(digest) or named
                runs.setdefault(digest, set()).update(row["runs"])
        told = []
        for digest in dict.fromkeys((*self._views.given, *samples)):
            index = self._views.index(digest)
            file = self._views.given.get(digest)
            known = not isinstance(index, Unscored)
            told.append(
                {
                    "digest": digest,
                    "name": names.get(digest),
                    "file": None if file is None else file.name,
                    "problems": len(index) if not isinstance(index, Unscored) else None,
                    "nodes": index.info.num_nodes if not isinstance(index, Unscored) else None,
                    "samples": samples[digest],
                    "runs": sorted(runs.get(digest, ())),
                    "identities": sorted(identities.get(digest, ())),
                    "browsable": known,
                    "reviewable": known and file is not None,
                    "why": None if known else str(index),
                }
            )
        return {"revision": self._now.revision, "rows": told}

    def dataset(self, digest: str, wanted: Filter, *, named: str, problem: str | None) -> Document:
        """Return a page of a dataset's problems, with the rates of their nodes.

        Args:
            digest: of the dataset.
            wanted: samples that count.
            named: part of an id that is looked for.
            problem: an id, for this one alone.

        Raises:
            LookupError: there is no such dataset, or it cannot be read.
        """
        index = self._dataset(digest)
        wanted = replace(wanted, dataset=digest)
        if problem is not None:
            ids = [problem] if problem in index else []
            total = len(ids)
        elif named:
            ids = [one for one in index.problem_ids() if named.casefold() in one.casefold()]
            total, ids = len(ids), ids[wanted.offset : wanted.offset + wanted.limit]
        elif wanted.sort is not None:
            order = self._by_gap(wanted)
            order = [one for one in order if one in index]
            total, ids = len(order), order[wanted.offset : wanted.offset + wanted.limit]
        else:
            total = len(index)
            last = min(total, wanted.offset + wanted.limit)
            ids = index.problem_ids(wanted.offset, last)
        where, values = self._now.condition(wanted)
        counts = self._now.rows(
            f"SELECT problem, acc, channels, count(*) AS n FROM samples WHERE {where}"
            " AND problem IN (SELECT unnest(?)) GROUP BY 1, 2, 3",
            [*values, ids],
        )
        file = self._views.given.get(digest)
        return {
            "digest": digest,
            "file": None if file is None else file.name,
            "reviewable": file is not None,
            "total": total,
            "offset": wanted.offset,
            "rows": [
                self._dataset_problem(index, one, [row for row in counts if row["problem"] == one])
                for one in ids
            ],
        }

    def _dataset(self, digest: str) -> DatasetIndex:
        known = [row["digest"] for row in self.datasets()["rows"]]
        if digest not in known:
            raise LookupError(f"there is no dataset {one_line(digest, 80)!r} here")
        index = self._views.index(digest)
        if isinstance(index, Unscored):
            raise LookupError(f"dataset {digest}: {index}")
        return index

    def _dataset_problem(
        self, index: DatasetIndex, problem_id: str, counts: Sequence[Row]
    ) -> Document:
        entry = index.entry(problem_id)
        assert entry is not None  # its id comes from the index
        reached = _Reached.of((row["acc"], row["channels"] or "", row["n"]) for row in counts)
        return {
            **self._problem(problem_id, index.digest),
            "samples": sum(row["n"] for row in counts),
            "right": reached.rights,
            "wrong": reached.wrongs,
            "nodes": [_node(at, node) | reached.at(at) for at, node in enumerate(entry.nodes)],
        }

    def _by_gap(self, wanted: Filter) -> list[str]:
        """Return the problems whose nodes most often go with wrong answers, these first."""
        where, values = self._now.condition(wanted)
        rows: list[Row] = self._now.remembered(
            ("gap", where, repr(values)),
            lambda: self._now.rows(_GAPS.format(where=where), values),
        )
        return [row["problem"] for row in rows]

    def review(self, digest: str, dropped: object) -> Document:
        """Write a new dataset file without some nodes, beside the given one.

        Args:
            digest: of a dataset that was given as a file.
            dropped: pairs of problem id and number of the node, from 0.

        Raises:
            InputError: a pair names no node, or the file cannot be written.
            LookupError: there is no such dataset.
        """
        index = self._dataset(digest)
        file = self._views.given.get(digest)
        if file is None:
            raise InputError("only a dataset that was given as a file of rows can be reviewed")
        wanted = _dropped(dropped, index)
        if not wanted:
            raise InputError("drop names no node")
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


_CHANNEL_OF: Final = {"p": "pattern", "s": "statement", "c": "code"}
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
    avg((guard < 1)::INTEGER) AS guarded, avg(num_tokens) AS tokens
FROM samples WHERE {where}
"""
_COMPARED: Final = """
WITH one AS (SELECT problem, {step} AS step, count(*) AS samples, avg(acc) AS acc, avg(ncr) AS ncr,
    avg(score) AS reward FROM samples WHERE {one} GROUP BY 1, 2),
other AS (SELECT problem, {step} AS step, count(*) AS samples, avg(acc) AS acc, avg(ncr) AS ncr,
    avg(score) AS reward FROM samples WHERE {other} GROUP BY 1, 2)
SELECT coalesce(one.problem, other.problem) AS problem, coalesce(one.step, other.step) AS step,
    one.samples AS a_samples, one.acc AS a_acc, one.ncr AS a_ncr, one.reward AS a_reward,
    other.samples AS b_samples, other.acc AS b_acc, other.ncr AS b_ncr, other.reward AS b_reward,
    other.acc - one.acc AS acc, other.ncr - one.ncr AS ncr, other.reward - one.reward AS reward
FROM one FULL JOIN other ON one.problem = other.problem{same}
"""
# By the node that wrong samples reach most often, as against right ones.
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


class _Reached:
    """How many right and wrong samples reached each node of a problem."""

    def __init__(self) -> None:
        self.rights = self.wrongs = 0
        self._counts: Counter[tuple[int, bool]] = Counter()

    @classmethod
    def of(cls, samples: Iterator[tuple[float | None, str, int]]) -> _Reached:
        """Count samples by Acc, channels and number."""
        reached = cls()
        for acc, channels, number in samples:
            if acc is None:
                continue
            if acc == 1:
                reached.rights += number
            else:
                reached.wrongs += number
            for at, letter in enumerate(channels):
                if letter != "-":
                    reached._counts[at, acc == 1] += number
        return reached

    def at(self, node: int) -> Document:
        """Return counts of a node."""
        return {"by_right": self._counts[node, True], "by_wrong": self._counts[node, False]}


# What a page to keep can be asked for, as its links and choices say it.
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


def compare_asked(query: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return the arguments of :meth:`Documents.compare` that the parameters of an address say.

    Raises:
        InputError: names the parameter, its value and what it may be.
    """
    given = {name: value for name, value in query if name in ("by", "change", "sort", "q")}
    for name, known in (("by", COMPARED_BY), ("change", CHANGES), ("sort", COMPARED_SORTS)):
        if given.get(name) and given[name] not in known:
            shown = given[name][:60]
            raise InputError(f"{name} must be one of {', '.join(known)}, got {shown!r}")
    if len(given.get("q", "")) > MAX_CHARS:
        raise InputError(f"q has {len(given['q'])} characters, the limit is {MAX_CHARS}")
    names = {f"{side}_{name}": (side, name) for side in "ab" for name in ("model", "step")}
    names |= {side: (side, "run") for side in "ab"}
    sides: dict[str, list[tuple[str, str]]] = {"a": [], "b": []}
    rest = []
    for name, value in query:
        if name in names:
            side, own = names[name]
            sides[side].append((own, value))
        elif name in ("source", "split"):
            sides["a"].append((name, value))
            sides["b"].append((name, value))
        elif name not in given:
            rest.append((name, value))
    return {
        "one": Filter.of(sides["a"]),
        "other": Filter.of(sides["b"]),
        "wanted": Filter.of(rest, ("desc", "offset", "limit")),
        "by": given.get("by") or "problem",
        "change": given.get("change", ""),
        "sort": given.get("sort") or "acc",
        "named": given.get("q", ""),
    }


def _named(path: str, chosen: Mapping[str, str]) -> str:
    """Return what a document is asked for by, as the page's script makes it."""
    pairs = [[name, chosen[name]] for name in sorted(chosen)]
    told = json.dumps(pairs, ensure_ascii=False, separators=(",", ":"))
    return f"{path}?{told}" if pairs else path


def _component(text: str) -> str:
    """Return a part of a path as JavaScript's encodeURIComponent does."""
    return quote(text, safe="!*'()", errors="replace")


def _told_identity(identity: Row) -> Document:
    spec = identity["reward_spec"]
    reward: Document | None = None
    if spec is not None:
        with contextlib.suppress(InputError):
            reward = asdict(read_reward(spec)) | {"formula": read_reward(spec).formula()}
    return {**identity, "reward_spec": reward}


def _columns(points: Sequence[CurvePoint]) -> Document:
    known = [point for point in points if point.last_step is not None]
    return {
        "x": [point.last_step for point in known],
        "first": [point.first_step for point in known],
        **{name: [getattr(point, name) for point in known] for name in ("samples", *FIGURES)},
        "statuses": [dict(point.statuses) for point in known],
        "without_step": sum(point.samples for point in points if point.last_step is None),
        "total": [_figures(point) for point in points if point.last_step is None],
    }


def _figures(point: CurvePoint) -> Document:
    return {name: getattr(point, name) for name in ("samples", *FIGURES)}


def _node(at: int, node: Node | None) -> Document:
    if node is None:
        return {"number": at, "id": None, "label": None, "type": None, "expressions": [],
                "is_final": None, "support": None}  # fmt: skip
    return {
        "number": at,
        "id": node.node_id,
        "label": node.label or None,
        "type": node.type,
        "expressions": list(node.expressions),
        "is_final": node.is_final,
        "support": node.support,
    }


def _nodes_of(explained: Explanation, light: Row) -> list[Document]:
    logged = light["channels"] or ""
    return [
        {
            "number": at,
            "id": node.node_id,
            "label": node.label or None,
            "expressions": list(node.expressions),
            "is_final": node.is_final,
            "counts": node.counts,
            "matched": node.matched,
            "channel": node.channel or None,
            "span": None if node.span is None else list(node.span),
            "expression": node.expression or None,
            "logged": logged[at] != "-" if at < len(logged) else None,
        }
        for at, node in enumerate(explained.nodes)
    ]


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
            pieces.append(
                {
                    "text": piece.text,
                    "nodes": around,
                    "begins": list(piece.begins),
                    "ends": list(piece.ends),
                }
            )
            around = [node for node in around if node not in piece.ends]
        end_of_last = end
    return pieces


def _answer(light: Row, truth: str | None) -> Document:
    """Return why Acc is what it is."""
    acc, answer, method = light["acc"], light["answer"], light["answer_method"]
    shown = "no answer" if answer is None else f"the answer {one_line(answer, 80)!r}"
    if acc is None:
        sentence = light["message"] or "Nothing says whether the answer is right."
    elif truth is None:
        sentence = f"Found in the text: {shown}; it counts as {'right' if acc else 'wrong'}."
    else:
        how = "equals" if acc else "does not equal"
        sentence = f"Found in the text: {shown}, which {how} the ground truth {one_line(truth)!r}."
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
    spec: RewardSpec | None = None
    if identity["reward_spec"] is not None:
        with contextlib.suppress(InputError):
            spec = read_reward(identity["reward_spec"])
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
    """Say what comes out today otherwise than it was logged."""
    score = explained.score
    now = {"status": score.status.value, "acc": score.acc, "ncr": score.ncr}
    if light["reward"] is not None:
        now["reward"] = score.reward
    other = [name for name, value in now.items() if not _same(light[name], value)]
    if not other:
        return None
    changes = ", ".join(f"{name} {light[name]} then, {now[name]} now" for name in other)
    return f"Scored again it comes out otherwise: {changes}."


def _same(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= _EQUAL
    return one == other


_OF_NEIGHBOURS: Final = ("key", "score", "acc", "ncr", "status", "flags")
# What tells the groups of a run from one another; of one with an id, its problem does not.
_GROUP: Final = ("step", "split", "model", "group", "problem")


def _group_of(row: Row) -> tuple[Any, ...]:
    """Return what tells the group of a sample: its run, and its values of :data:`_GROUP`."""
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


# Which problems of two sides changed, and how; Acc differs where it does by more than rounding.
_CHANGED: Final[dict[str, Callable[[pa.Table], pa.ChunkedArray]]] = {
    "better": _compared(pc.greater, _EQUAL),
    "worse": _compared(pc.less, -_EQUAL),
    "same": lambda table: pc.fill_null(pc.less_equal(pc.abs(table.column("acc")), _EQUAL), False),
    "only_a": lambda table: pc.is_null(table.column("b_samples")),
    "only_b": lambda table: pc.is_null(table.column("a_samples")),
}
CHANGES: Final = tuple(_CHANGED)


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
    reached = [
        _Reached.of((row["acc"], row["channels"] or "", row["n"]) for row in some) for some in rows
    ]
    return {
        "x": [part[-1] for part in parts],
        "first": [part[0] for part in parts],
        "right": [one.rights for one in reached],
        "wrong": [one.wrongs for one in reached],
        "ncr": [_mean(some, "ncr") for some in rows],
        "score": [_mean(some, "score") for some in rows],
        "nodes": [
            {
                "by_right": [one.at(at)["by_right"] for one in reached],
                "by_wrong": [one.at(at)["by_wrong"] for one in reached],
            }
            for at in range(width)
        ],
    }


def _mean(rows: Sequence[Row], name: str) -> float | None:
    count = sum(row[f"with_{name}"] for row in rows)
    return sum(row[name] or 0.0 for row in rows) / count if count else None


def _dropped(given: object, index: DatasetIndex) -> dict[str, set[int]]:
    """Return the nodes to drop by problem."""
    if not isinstance(given, list):
        raise InputError("drop must be a list of [problem, node]")
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
    ending = next(
        (one for one in (".jsonl.gz", ".jsonl", ".parquet") if file.name.endswith(one)), ".jsonl"
    )
    stem = file.name.removesuffix(ending)
    hidden = file.with_name(f".{stem}.reviewed-{os.getpid()}-{threading.get_ident()}{ending}")
    try:
        with open_writer(hidden) as out:
            for problem, row in read_problem_rows(file):
                drop = dropped.get(problem.problem_id, set())
                if drop:
                    nodes = [node for at, node in enumerate(row["nodes"]) if at not in drop]
                    row = {**row, "nodes": nodes}
                out.write(row)
        number = 1
        while True:
            path = file.with_name(f"{stem}.reviewed-{number}{ending}")
            try:
                os.link(hidden, path)  # fails where there is one
            except FileExistsError:
                number += 1
            else:
                return path
    except OSError as error:
        raise InputError(f"cannot write beside {file}: {error.strerror}") from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            hidden.unlink()
