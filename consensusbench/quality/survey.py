"""What rollouts say about the nodes of a dataset, in one pass and in bounded memory."""

from __future__ import annotations

import hashlib
import heapq
import os
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final, TypeAlias

import numpy as np

from consensusbench.evaluation.scored import Bools, Floats, Ints
from consensuspr.client.files import chunks
from consensuspr.core import BatchResult, Matcher, match_batch
from consensuspr.data import OnError, ReadReport, Row, read_rollouts
from consensuspr.scoring import DatasetIndex
from consensuspr.scoring.dataset_index import Entry
from consensuspr.scoring.guard import counted, factors_of

# The expressions of each node of a problem.
Patterns: TypeAlias = Sequence[Sequence[str]]

# Only the beginning of a response is kept in the sample.
MAX_CHARS_EACH: Final = 1 << 17
# Nodes of one automaton, so that it fits into the cache.
POOL_NODES = 1024
KEPT_DENSEST: Final = 10
# A hit in a shorter text is a bare answer, not a stuffed rollout.
MIN_STUFFED_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class SurveyedRollout:
    """A rollout of a sample, with the beginning of its text."""

    problem_id: str
    text: str


@dataclass(slots=True)
class RolloutSample:
    """At most so many rollouts and so many characters a source.

    The rollouts whose content hashes smallest are kept: the same rollouts in other files or in
    another order give the same sample.
    """

    per_source: int = 256
    max_chars: int = 2 << 20
    # By source: (negated hash, rollout), the largest hash on top, and the characters held.
    _kept: dict[str, list[tuple[int, SurveyedRollout]]] = field(default_factory=dict)
    _chars: dict[str, int] = field(default_factory=dict)
    # By source: the smallest negated hash that may still come in, so that order does not matter.
    _least: dict[str, int] = field(default_factory=dict)

    def add(self, source: str, problem_id: str, response: str) -> None:
        """Offer a rollout."""
        content = f"{problem_id}\0{response}".encode("utf-8", "surrogatepass")
        rank = -int.from_bytes(hashlib.blake2b(content, digest_size=8).digest())
        heap = self._kept.setdefault(source, [])
        if rank < self._least.get(source, rank) or any(rank == kept for kept, _ in heap):
            return
        text = response[:MAX_CHARS_EACH]
        heapq.heappush(heap, (rank, SurveyedRollout(problem_id, text)))
        chars = self._chars.get(source, 0) + len(text)
        while len(heap) > self.per_source or (chars > self.max_chars and len(heap) > 1):
            gone, dropped = heapq.heappop(heap)
            chars -= len(dropped.text)
            self._least[source] = gone + 1
        self._chars[source] = chars

    def of(self, source: str) -> list[SurveyedRollout]:
        """Return the sample of a source, in the order of its hashes."""
        return [one for _, one in sorted(self._kept.get(source, ()), key=lambda kept: -kept[0])]

    def typical_chars(self, source: str) -> int | None:
        """Return the median length of the sample of a source; None without one."""
        lengths = [len(one.text) for _, one in self._kept.get(source, ())]
        return round(median(lengths)) if lengths else None


@dataclass(frozen=True, slots=True)
class DensityFigures:
    """How densely rollouts of one source hit the nodes of their own problem."""

    rollouts: int
    ncr: float
    median_chars: float
    median_per_1000_chars: float
    p99_per_1000_chars: float
    median_per_1000_tokens: float | None
    p99_per_1000_tokens: float | None


@dataclass(frozen=True, slots=True)
class WrongFigures:
    """Mean NCR of the wrong rollouts of one source, by their ``correct`` or ``acc``."""

    rollouts: int
    ncr: float
    ncr_raw: float


@dataclass(frozen=True, slots=True)
class DenseRollout:
    """A rollout with many hits for its length."""

    problem_id: str
    rollout_id: str
    data_source: str
    ncr: float
    chars: int
    hits_per_1000_chars: float


@dataclass(slots=True)
class OwnHits:
    """Rollouts of a problem, and for each node how many of them hit it."""

    rollouts: int
    hits: Ints


class RolloutSurvey:
    """Statistics of rollouts: ``own`` hits by problem id, and a ``sample`` by data source."""

    def __init__(self, index: DatasetIndex, threads: int = 0) -> None:
        self.own: dict[str, OwnHits] = {}
        self.sample = RolloutSample()
        self.rows = 0
        self.unknown = 0
        self._index = index
        self._threads = threads
        # By source: NCR, characters, hits, tokens (or NaN), wrong (0 or 1), guard of each rollout.
        self._figures: dict[str, array[float]] = defaultdict(lambda: array("d"))
        self._densest: list[tuple[float, int, DenseRollout]] = []

    def density(self) -> dict[str, DensityFigures]:
        """Return the density of hits by source."""
        found = {}
        for source, figures in self._figures.items():
            ncr, chars, hits, tokens, _, _ = np.array(figures).reshape(-1, 6).T
            per_char, per_token = 1000 * hits / chars, (1000 * hits / tokens)[~np.isnan(tokens)]
            found[source] = DensityFigures(
                rollouts=len(ncr),
                ncr=float(ncr.mean()),
                median_chars=float(np.median(chars)),
                median_per_1000_chars=float(np.median(per_char)),
                p99_per_1000_chars=float(np.percentile(per_char, 99)),
                median_per_1000_tokens=float(np.median(per_token)) if len(per_token) else None,
                p99_per_1000_tokens=float(np.percentile(per_token, 99)) if len(per_token) else None,
            )
        return found

    def wrong(self) -> dict[str, WrongFigures]:
        """Return the mean NCR of wrong rollouts by source."""
        found = {}
        for source, figures in self._figures.items():
            ncr, _, _, _, wrong, guard = np.array(figures).reshape(-1, 6).T
            if count := int(wrong.sum()):
                guarded, raw = (ncr * guard)[wrong == 1], ncr[wrong == 1]
                found[source] = WrongFigures(count, float(guarded.mean()), float(raw.mean()))
        return found

    def densest(self) -> tuple[DenseRollout, ...]:
        """Return the rollouts with the most hits for their length, the densest first."""
        return tuple(one for _, _, one in sorted(self._densest, key=lambda kept: -kept[0]))

    def take(self, rows: Sequence[Row]) -> None:
        """Count rows of rollouts."""
        known: list[tuple[Row, Entry, int]] = []
        for row in rows:
            self.rows += 1
            entry = self._index.entry(row["problem_id"])
            if entry is None:
                self.unknown += 1
            elif row["response"]:
                self.sample.add(entry.data_source, entry.problem_id, row["response"])
                if entry.num_nodes:
                    known.append((row, entry, self.rows))
        entries, texts = [entry for _, entry, _ in known], [row["response"] for row, _, _ in known]
        matched = match_batch([one.matcher for one in entries], texts, threads=self._threads)
        guards = guard_factors(entries, texts, matched)
        for at, (row, entry, position) in enumerate(known):
            self._count(row, entry.data_source, matched.matched(at), float(guards[at]), position)

    def _count(self, row: Row, source: str, hit: Bools, guard: float, position: int) -> None:
        nothing = OwnHits(0, np.zeros(len(hit), dtype=np.int64))
        own = self.own.setdefault(row["problem_id"], nothing)
        own.rollouts += 1
        own.hits += hit
        chars, hits = len(row["response"]), int(hit.sum())
        ncr = hits / len(hit)
        tokens = row.get("num_tokens")
        wrong = row.get("correct", row.get("acc")) in (False, 0)
        length = tokens if tokens and tokens > 0 else float("nan")
        self._figures[source].extend((ncr, chars, hits, length, wrong, guard))
        if hits and chars >= MIN_STUFFED_CHARS:
            name = row.get("rollout_id") or f"row {position}"
            density = 1000 * hits / chars
            dense = DenseRollout(row["problem_id"], name, source, ncr, chars, density)
            # Earlier rows win a tie, so that the same files give the same list.
            heapq.heappush(self._densest, (density, -position, dense))
            if len(self._densest) > KEPT_DENSEST:
                heapq.heappop(self._densest)


def survey_rollouts(
    paths: Iterable[str | os.PathLike[str]],
    index: DatasetIndex,
    *,
    threads: int = 0,
    on_error: OnError = "stop",
    progress: Callable[[int], None] = lambda done: None,
) -> RolloutSurvey:
    """Read files of rollouts once.

    Raises:
        DataError: a file is bad, or a row of it and ``on_error`` is ``"stop"``.
    """
    survey = RolloutSurvey(index, threads)
    for path in paths:
        for chunk in chunks(read_rollouts(path, on_error, ReadReport())):
            survey.take(chunk)
            progress(survey.rows)
    return survey


def guard_factors(entries: Sequence[Entry], texts: Sequence[str], matched: BatchResult) -> Floats:
    """Return the (n,) factors of the guard for texts that were matched for these problems."""
    budgets, nodes = [one.budget for one in entries], [one.num_nodes for one in entries]
    return factors_of(*counted(matched), budgets, nodes, texts)


def match_unrelated(
    problems: Sequence[tuple[str, Patterns]], sample: Sequence[SurveyedRollout], threads: int = 0
) -> list[Bools]:
    """Look for the nodes of problems of one source in the rollouts of other problems.

    The nodes of many problems share one automaton, so that a text is read once for all of them.

    Returns:
        For each problem (rollouts of others, nodes): True if a node was found.
    """
    owners = np.array([one.problem_id for one in sample], dtype=object)
    texts = [one.text for one in sample]
    pools: list[list[tuple[str, Patterns]]] = []
    size = POOL_NODES
    for problem in problems:
        if size + len(problem[1]) > POOL_NODES:
            pools.append([])
            size = 0
        pools[-1].append(problem)
        size += len(problem[1])
    results: list[Bools] = []
    for pool in pools:
        matcher = Matcher([node for _, patterns in pool for node in patterns])
        matched = match_batch([matcher] * len(texts), texts, threads=threads)
        hits = np.array([matched.matched(row) for row in range(len(texts))], dtype=np.bool_)
        hits = hits.reshape(len(texts), matcher.num_nodes)
        start = 0
        for problem_id, patterns in pool:
            own = hits[:, start : start + len(patterns)]
            results.append(own[owners != problem_id])
            start += len(patterns)
    return results


def hit_rates(hits: Bools) -> Floats:
    """Return for each node the share of rollouts that hit it."""
    rates: Floats = hits.sum(axis=0) / max(len(hits), 1)
    return rates
