"""Rollouts matched with the nodes of a dataset, in one pass and in bounded memory."""

from __future__ import annotations

import hashlib
import os
from array import array
from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, NamedTuple

import numpy as np

from consensusbench import verify_patiently
from consensusbench.evaluation.scored import Bools, Floats, Ints
from consensuspr.client.files import chunks
from consensuspr.core import BatchResult, match_batch
from consensuspr.data import Node, OnError, Problem, ReadReport, Row, read_rollouts
from consensuspr.scoring import AnswerVerifier, DatasetIndex
from consensuspr.scoring.dataset_index import Entry
from consensuspr.scoring.guard import counted, factors_of
from consensuspr.scoring.matchers import matcher_of

# The sample of a source has at most so many rollouts, of each the first characters.
MAX_SAMPLED: Final = 256
MAX_CHARS_EACH: Final = 1 << 17
# Nodes of one automaton, so that it fits into the cache.
POOL_NODES = 1024


class SurveyedRollout(NamedTuple):
    """A rollout of a sample, with the beginning of its text; ``rank`` is a hash of all of it."""

    rank: bytes
    problem_id: str
    text: str


@dataclass(frozen=True, slots=True)
class WrongFigures:
    """Mean NCR of the wrong rollouts of one source."""

    rollouts: int
    ncr: float
    ncr_raw: float


@dataclass(slots=True)
class OwnHits:
    """Held-out rollouts of a problem, and for each node how many of them hit it."""

    rollouts: int
    hits: Ints


class Sources(NamedTuple):
    """What the nodes of a problem were made of: models, and ids of rollouts of unknown ones."""

    models: frozenset[str] = frozenset()
    rollout_ids: frozenset[str] = frozenset()

    @classmethod
    def of(cls, problem: Problem) -> Sources:
        """Return what a problem's metadata say."""
        construction = problem.metadata.get("construction")
        listed = construction.get("rollouts") if isinstance(construction, dict) else None
        rows = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
        models = {name for row in rows if isinstance(name := row.get("model"), str) and name}
        ids = {row.get("rollout_id") for row in rows if row.get("model") not in models}
        return cls(frozenset(models), frozenset(name for name in ids if isinstance(name, str)))

    def hold(self, row: Row) -> bool:
        """Return whether a rollout is of one of the models, or is one of the rollouts."""
        return row.get("model") in self.models or row.get("rollout_id") in self.rollout_ids


class RolloutSurvey:
    """Statistics of rollouts.

    Args:
        index: of the dataset.
        sources: by problem id, what its nodes were made of; none of it is held out.
        verifier: checks the answers of rows without ``correct`` and ``acc``, by the rule of the
            dataset or ``auto``; without it they count as right.

    Attributes:
        own: by problem id, hits of held-out rollouts that are not known to be wrong.
        samples: by data source, the rollouts whose content hashes smallest: the same rollouts in
            other files or in another order give the same sample.
        rows, unknown: rollouts, and those of problems that the dataset does not have.
    """

    def __init__(
        self,
        index: DatasetIndex,
        sources: Mapping[str, Sources] | None = None,
        verifier: AnswerVerifier | None = None,
    ) -> None:
        self.own: dict[str, OwnHits] = {}
        self.samples: dict[str, list[SurveyedRollout]] = defaultdict(list)
        self.rows = 0
        self.unknown = 0
        self._index = index
        self._sources = sources or {}
        self._verifier = verifier
        # By source: NCR and guard of each wrong rollout.
        self._wrong: dict[str, array[float]] = defaultdict(lambda: array("d"))

    def wrong(self) -> dict[str, WrongFigures]:
        """Return the mean NCR of wrong rollouts by source."""
        found = {}
        for source, figures in self._wrong.items():
            raw, guard = np.array(figures).reshape(-1, 2).T
            found[source] = WrongFigures(len(raw), float((raw * guard).mean()), float(raw.mean()))
        return found

    def typical_chars(self, source: str) -> int | None:
        """Return the median length of the sample of a source, if there is one."""
        lengths = [len(rollout.text) for rollout in self.samples.get(source, ())]
        return round(median(lengths)) if lengths else None

    def take(self, rows: Sequence[Row]) -> None:
        """Count rows of rollouts."""
        known: list[tuple[Row, Entry]] = []
        self.rows += len(rows)
        for row in rows:
            entry = self._index.entry(row["problem_id"])
            if entry is None:
                self.unknown += 1
            elif row["response"]:
                add_to_sample(self.samples[entry.data_source], entry.problem_id, row["response"])
                if entry.num_nodes:
                    known.append((row, entry))
        entries, texts = [entry for _, entry in known], [row["response"] for row, _ in known]
        matched = match_batch([one.matcher for one in entries], texts)
        guards = guard_factors(entries, texts, matched)
        labels = self._labels(known)
        for at, (row, entry) in enumerate(known):
            hit = matched.matched(at)
            if labels[at] in (False, 0):
                ncr = int(hit.sum()) / len(hit)
                self._wrong[entry.data_source].extend((ncr, float(guards[at])))
            elif not self._sources.get(entry.problem_id, Sources()).hold(row):
                nothing = OwnHits(0, np.zeros(len(hit), dtype=np.int64))
                own = self.own.setdefault(entry.problem_id, nothing)
                own.rollouts += 1
                own.hits += hit

    def _labels(self, known: Sequence[tuple[Row, Entry]]) -> list[object]:
        """Return whether rollouts are right, None for those of which nothing says so."""
        labels: list[object] = [row.get("correct", row.get("acc")) for row, _ in known]
        if self._verifier is not None:
            open_ = [
                at
                for at, (_, entry) in enumerate(known)
                if labels[at] is None and entry.ground_truth
            ]
            truths = [known[at][1].ground_truth or "" for at in open_]
            texts = [known[at][0]["response"] for at in open_]
            rule = self._index.answer_rule or "auto"
            for at, verdict in zip(
                open_, verify_patiently(self._verifier, truths, texts, rule), strict=True
            ):
                labels[at] = verdict
        return labels


def add_to_sample(sample: list[SurveyedRollout], problem_id: str, response: str) -> None:
    """Offer a rollout to a sample, which is kept in order; equal ones count once."""
    content = f"{problem_id}\0{response}".encode("utf-8", "surrogatepass")
    rank = hashlib.blake2b(content, digest_size=8).digest()
    rollout = SurveyedRollout(rank, problem_id, response[:MAX_CHARS_EACH])
    if len(sample) < MAX_SAMPLED or rank < sample[-1].rank:
        if rollout not in sample:
            insort(sample, rollout)
        del sample[MAX_SAMPLED:]


def survey_rollouts(
    paths: Iterable[str | os.PathLike[str]],
    index: DatasetIndex,
    *,
    sources: Mapping[str, Sources] | None = None,
    on_error: OnError = "stop",
    progress: Callable[[int], None] = lambda done: None,
) -> RolloutSurvey:
    """Read files of rollouts once.

    Args:
        sources: see :class:`RolloutSurvey`.

    Raises:
        DataError: a file is bad, or a row of it and ``on_error`` is ``"stop"``.
    """
    with AnswerVerifier() as verifier:
        survey = RolloutSurvey(index, sources, verifier)
        for path in paths:
            for chunk in chunks(read_rollouts(path, on_error, ReadReport())):
                survey.take(chunk)
                progress(survey.rows)
    return survey


def guard_factors(entries: Sequence[Entry], texts: Sequence[str], matched: BatchResult) -> Floats:
    """Return the (n,) factors of the guard for texts that were matched for these problems."""
    budgets, nodes = [one.budget for one in entries], [one.num_nodes for one in entries]
    return np.array(factors_of(counted(matched), budgets, nodes, texts))


def match_unrelated(
    problems: Sequence[tuple[str, Sequence[Node]]], sample: Sequence[SurveyedRollout]
) -> list[Bools]:
    """Look for the nodes of problems of one source in the rollouts of other problems.

    The nodes of many problems share one automaton, so that a text is read once for all of them.

    Returns:
        For each problem (rollouts of others, nodes): True if a node was found.
    """
    owners = np.array([rollout.problem_id for rollout in sample], dtype=object)
    texts = [rollout.text for rollout in sample]
    pools: list[list[tuple[str, Sequence[Node]]]] = []
    size = POOL_NODES
    for problem in problems:
        if size + len(problem[1]) > POOL_NODES:
            pools.append([])
            size = 0
        pools[-1].append(problem)
        size += len(problem[1])
    results: list[Bools] = []
    for pool in pools:
        matcher = matcher_of([node for _, nodes in pool for node in nodes])
        matched = match_batch([matcher] * len(texts), texts)
        hits = np.array([matched.matched(row) for row in range(len(texts))], dtype=np.bool_)
        hits = hits.reshape(len(texts), matcher.num_nodes)
        start = 0
        for problem_id, nodes in pool:
            own = hits[:, start : start + len(nodes)]
            results.append(own[owners != problem_id])
            start += len(nodes)
    return results
