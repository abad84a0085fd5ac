"""What a worker counts, as Prometheus metrics, and the scorer that counts it.

Always counted, shown only where ``metrics_address`` is set: a second, silent way through
the code would be the one without tests.  A worker tells the supervisor with each heartbeat what
has changed (:meth:`Metrics.changes`), and the supervisor's endpoint adds it up over all workers,
those that died included.  prometheus-client's own way for several processes keeps the numbers in
mapped files, of which a full disk makes SIGBUS.

Means are quotients of two counters, for example
``rate(consensuspr_ncr_sum_total[5m]) / rate(consensuspr_ncr_rollouts_total[5m])``.
"""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import compress
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from consensuspr.core import BACKEND, EXPANSION_VERSION, NORMAL_FORM_VERSION
from consensuspr.scoring import (
    ANSWER_VERSION,
    AnswerVerifier,
    DatasetIndex,
    Explanation,
    Scorer,
    Verdict,
)
from consensuspr.scoring.guard import GuardWatch
from consensuspr.scoring.scorer import Chosen
from consensuspr.scoring.types import (
    CHANNELS,
    AnswerRule,
    Identity,
    Rollout,
    ScoreColumns,
    ScoreOptions,
    Status,
)
from consensuspr.server.logs import LOGGER_NAME
from consensuspr.server.tracing import Trace
from consensuspr.v1 import PROTOCOL_VERSION
from consensuspr.version import VERSION

if TYPE_CHECKING:
    from consensuspr.score_log import ScoreLog

# Labels come from requests, and each value is kept for as long as the process lives: what
# does not fit in here is counted under OTHER.
MAX_VALUES = 32
MAX_VALUE_CHARS = 64
OTHER = "other"
UNKNOWN = "unknown"

_VERSIONS = {
    "version": VERSION,
    "protocol": str(PROTOCOL_VERSION),
    "normal_form": str(NORMAL_FORM_VERSION),
    "expansion": str(EXPANSION_VERSION),
    "answers": str(ANSWER_VERSION),
    "engine": BACKEND,
}

# From a batch of one short rollout to one that spends an answer's whole budget and more.
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
_FACTORS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 1)
_ANSWERS: Mapping[float, str] = {1.0: "right", 0.0: "wrong"}
_ROLLOUTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)

# What has been counted waits until it is so much, or somebody looks.
COUNTED_AT_ONCE = 64
_OK = Status.OK
_Columns: TypeAlias = dict[str, list[Any]]
_COUNTED_COLUMNS = "status", "answer_method", "channel_numbers", "acc", "guard", "ncr", "reward"

# More than runs and sources make in practice: looking one up in prometheus-client takes a lock and
# microseconds.
_REMEMBERED_CHILDREN = 2048

_log = logging.getLogger(LOGGER_NAME)


class Metrics:
    """The metrics of one worker; safe to use from any thread.

    Args:
        registry: where they are registered; None: one of their own.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._registry = registry or CollectorRegistry()
        # What was counted and is not yet in the registry: what counts several such, and one.
        self._waiting: deque[tuple[Callable[[list[Any]], None], Any]] = deque()
        self._merged: dict[str, str] = {}
        self._told: dict[tuple[str, tuple[str, ...]], float] = {}
        self._known: dict[str, set[str]] = {"data_source": set(), "run": set()}
        self._guard_watch = GuardWatch()
        # Tells what others have counted since their start, and what is unfinished: bytes, requests.
        self.totals: Callable[[], Mapping[str, int]] = dict
        self.queue: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self._child = lru_cache(_REMEMBERED_CHILDREN)(_labelled)
        self._requests = self._counter("requests", "Requests by outcome.", "method", "code")
        self._request_seconds = self._histogram(
            "request_seconds", "Time from a request's arrival to its reply.", _SECONDS, "method"
        )
        self._request_rollouts = self._histogram(
            "request_rollouts", "Rollouts in one scoring request.", _ROLLOUTS
        )
        self._batch_seconds = self._histogram(
            "batch_seconds",
            "Time of one batch in work: match (and reward), answers, total.",
            _SECONDS,
            "stage",
        )
        self._rollouts = self._counter("rollouts", "Scored rollouts.", "status", *self._known)
        self._response_bytes = self._counter("response_bytes", "Bytes of scored responses.")
        self._answers = self._counter("answers", "Checked answers.", "method")
        self._undecided = self._counter("answers_undecided", "Answers left undecided.")
        self._sums = {
            value: (
                self._counter(f"{value}_sum", f"Sum of {value}.", *self._known),
                self._counter(f"{value}_rollouts", f"Rollouts that have {value}.", *self._known),
            )
            for value in ("ncr", "acc", "reward")
        }
        self._nodes = self._counter(
            "nodes", "Nodes of scored rollouts by how they were reached, if at all.", "channel"
        )
        self._guarded = self._counter(
            "guarded_rollouts",
            "Rollouts whose NCR the guard lowered, by their answer: right, wrong or unknown.",
            "answer",
        )
        self._guard_factors = self._histogram(
            "guard_factor", "What the guard multiplied NCR by, where it lowered it.", _FACTORS
        )
        self._score_log_lost = self._counter(
            "score_log_lost",
            "Rows that the score log lacks, and texts that its rows lack: disk full or too slow.",
            "what",
        )
        for what in ("rows", "texts"):
            self._score_log_lost.labels(what)  # from the start: an alert needs to see it rise
        self._counted_by_others = {
            "cache_hits": self._counter("matcher_cache_hits", "Matchers found compiled."),
            "cache_misses": self._counter("matcher_cache_misses", "Matchers compiled."),
        }
        self._told_totals = dict.fromkeys(self._counted_by_others, 0)
        info = self._gauge("build_info", "1 for the versions that serve.", "max", *_VERSIONS)
        info.labels(**_VERSIONS).set(1)
        self._dataset_info = self._gauge(
            "dataset_info", "1 for the digest that a dataset has, 0 for those that it had.",
            "max", "dataset", "digest",
        )  # fmt: skip
        self._dataset_problems = self._gauge(
            "dataset_problems", "Problems of a dataset.", "max", "dataset"
        )
        self._served: dict[str, str] = {}
        self._queue_seconds = self._histogram(
            "queue_seconds", "Time from a request's admission to the begin of its work.", _SECONDS
        )
        self._queue_bytes = self._gauge("queue_bytes", "Bytes of unfinished requests.", "sum")
        self._queue_requests = self._gauge("queue_requests", "Unfinished requests.", "sum")

    @property
    def registry(self) -> CollectorRegistry:
        """The metrics, with all that has been counted so far."""
        self._catch_up()
        for name, number in self.totals().items():
            if number > self._told_totals[name]:
                self._counted_by_others[name].inc(number - self._told_totals[name])
                self._told_totals[name] = number
        num_bytes, num_requests = self.queue()
        self._queue_bytes.set(num_bytes)
        self._queue_requests.set(num_requests)
        return self._registry

    def _soon(self, count: Callable[[list[Any]], None], what: object) -> None:
        """Have something counted, which is done for many requests at a time.

        Between two requests a core forgets some twenty series and what counts in them.
        """
        self._waiting.append((count, what))
        if len(self._waiting) >= COUNTED_AT_ONCE:
            self._catch_up()

    def _catch_up(self) -> None:
        found: dict[Callable[[list[Any]], None], list[Any]] = defaultdict(list)
        for _ in range(len(self._waiting)):
            try:
                count, what = self._waiting.popleft()
            except IndexError:  # another thread counts them
                break
            found[count].append(what)
        for count, several in found.items():
            count(several)

    def changes(self) -> dict[str, Any]:
        """Return what has changed since the last call, for whoever adds workers up.

        To be called by one thread.

        Returns:
            By metric: its text, its kind, how its values of several workers become one (``sum``
            or ``max``), and the samples that have changed, each ``[name, labels, their values,
            value]``.
        """
        changed: dict[str, Any] = {}
        for metric in self.registry.collect():
            samples = []
            for name, labels, value, *_ in metric.samples:
                values = tuple(labels.values())
                if not name.endswith("_created") and self._told.get((name, values)) != value:
                    self._told[name, values] = value
                    samples.append([name, list(labels), list(values), value])
            if samples:
                merged = self._merged.get(metric.name, "sum")
                changed[metric.name] = [metric.documentation, metric.type, merged, samples]
        return changed

    def tell_all_again(self) -> None:
        """Have the next :meth:`changes` return everything: the last were lost."""
        self._told.clear()

    def request(self, method: str, code: str, seconds: float) -> None:
        """Count a finished request."""
        self._soon(self._count_requests, (method, code, seconds))

    def _count_requests(self, several: list[tuple[str, str, float]]) -> None:
        ended = collections.Counter([(method, code) for method, code, _ in several])
        for (method, code), number in ended.items():
            self._child(self._requests, method, code).inc(number)
        for method, _, seconds in several:
            self._child(self._request_seconds, method).observe(seconds)

    def request_rollouts(self, number: int) -> None:
        """Count the rollouts of a scoring request."""
        self._soon(self._count_request_rollouts, number)

    def _count_request_rollouts(self, several: list[int]) -> None:
        for number in several:
            self._request_rollouts.observe(number)

    def queued(self, seconds: float) -> None:
        """Count the time that a request waited for its turn."""
        self._soon(self._count_queued, seconds)

    def _count_queued(self, several: list[float]) -> None:
        for seconds in several:
            self._queue_seconds.observe(seconds)

    def serving(self, datasets: Mapping[str, DatasetIndex]) -> None:
        """Say which datasets are served from now on."""
        for name, digest in self._served.items():
            if name not in datasets or datasets[name].digest != digest:
                self._dataset_info.labels(name, digest).set(0)
                self._dataset_problems.labels(name).set(0)
        for name, index in datasets.items():
            self._dataset_info.labels(name, index.digest).set(1)
            self._dataset_problems.labels(name).set(len(index))
        self._served = {name: index.digest for name, index in datasets.items()}

    def batch(
        self,
        rollouts: Sequence[Rollout],
        sources: Sequence[str | None],
        scores: ScoreColumns,
        *,
        run: str | None,
        total_s: float,
        answers_s: float,
    ) -> None:
        """Count a scored batch of n rollouts, sources and scores.

        What is left of ``total_s`` without ``answers_s`` went into matching and the reward.
        """
        # Copies: the columns are the first part of the reply's, and grow.
        columns = {name: [*getattr(scores, name)] for name in _COUNTED_COLUMNS}
        num_bytes = sum([len(rollout.response) for rollout in rollouts])
        # What a client calls its sources may be long, and is not kept.
        known = {source: self._bounded("data_source", source) for source in dict.fromkeys(sources)}
        labels = [known[source] for source in sources]
        run = self._bounded("run", run)
        self._soon(self._count_batches, (num_bytes, labels, columns, run, total_s, answers_s))

    def _count_batches(
        self, several: list[tuple[int, list[str], _Columns, str, float, float]]
    ) -> None:
        of_run: dict[str, tuple[list[str], _Columns]] = {}
        for num_bytes, labels, columns, run, total_s, answers_s in several:
            match_s = max(0.0, total_s - answers_s)
            for stage, seconds in (("total", total_s), ("answers", answers_s), ("match", match_s)):
                self._child(self._batch_seconds, stage).observe(seconds)
            self._response_bytes.inc(num_bytes)
            known = of_run.setdefault(run, (labels, columns))
            if known[0] is not labels:
                known[0].extend(labels)
                for name, column in columns.items():
                    known[1][name].extend(column)
        for run, (labels, columns) in of_run.items():
            self._count_scores(run, labels, columns)

    def _count_scores(self, run: str, labels: list[str], columns: _Columns) -> None:
        for method, number in collections.Counter(columns["answer_method"]).items():
            if method:
                self._child(self._answers, method).inc(number)
        if undecided := columns["status"].count(Status.ANSWER_UNDECIDED):
            self._undecided.inc(undecided)
        self._nodes_and_guard(columns)
        names = dict.fromkeys(labels)
        for label in names:
            chosen = columns
            if len(names) > 1:
                here = [one == label for one in labels]
                chosen = {name: [*compress(column, here)] for name, column in columns.items()}
            statuses = chosen["status"]
            # An enumeration's hash is a function of Python's: the usual one is not looked up.
            others = dict.fromkeys([one for one in statuses if one is not _OK])
            for status in [_OK, *others]:
                if number := statuses.count(status):
                    self._child(self._rollouts, status, label, run).inc(number)
            for name, (value_sum, value_rollouts) in self._sums.items():
                values = [value for value in chosen[name] if value == value]
                if values:  # none of it is no series of its own
                    self._child(value_sum, label, run).inc(sum(values))
                    self._child(value_rollouts, label, run).inc(len(values))

    def _nodes_and_guard(self, columns: _Columns) -> None:
        reached = b"".join(columns["channel_numbers"])
        for number, channel in enumerate(CHANNELS):
            if count := reached.count(number):
                self._child(self._nodes, channel or "none").inc(count)
        accs, guards = columns["acc"], columns["guard"]
        right, lowered = accs.count(1.0), 0
        # NaN, no NCR, is neither.
        others = [pair for pair in zip(guards, accs, strict=True) if pair[0] != 1.0]
        for factor, acc in others:
            right -= acc == 1.0 and not factor < 1.0
            lowered += acc == 1.0 and factor < 1.0
            if factor < 1.0:
                self._child(self._guarded, _ANSWERS.get(acc, "unknown")).inc()
                self._guard_factors.observe(factor)
        warning = self._guard_watch.add(right, lowered)
        if warning is not None:
            _log.warning("%s", warning)

    def score_log_lost(self, rows: int, texts: int) -> None:
        """Count rows that the score log lacks, and texts that rows of it lack."""
        self._score_log_lost.labels("rows").inc(rows)
        self._score_log_lost.labels("texts").inc(texts)

    def _bounded(self, label: str, value: str | None) -> str:
        """Return the value of a label; at most a fixed number of different ones."""
        if not value:
            return UNKNOWN
        known = self._known[label]
        if value in known:
            return value
        if len(known) >= MAX_VALUES or len(value) > MAX_VALUE_CHARS:
            return OTHER
        known.add(value)
        return value

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"consensuspr_{name}", text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str, merged: Literal["sum", "max"], *labels: str) -> Gauge:
        self._merged[f"consensuspr_{name}"] = merged
        return Gauge(f"consensuspr_{name}", text, labels, registry=self._registry)

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(
            f"consensuspr_{name}", text, labels, buckets=buckets, registry=self._registry
        )


def _labelled(metric: Counter | Histogram, *labels: str) -> Any:
    """Return the series of a metric that has these labels."""
    return metric.labels(*labels)


class TimedVerifier(AnswerVerifier):
    """An answer verifier that knows how long the calling thread has waited for it.

    Options are those of :class:`AnswerVerifier`.
    """

    _last = threading.local()

    def verify_batch(
        self,
        ground_truths: Sequence[str],
        responses: Sequence[str | bytes],
        rule: str | AnswerRule = "auto",
        deadline: float | None = None,
    ) -> list[Verdict]:
        """Verify as :class:`AnswerVerifier` does."""
        start = time.perf_counter()
        try:
            return super().verify_batch(ground_truths, responses, rule, deadline)
        finally:
            took_s = time.perf_counter() - start
            self._last.seconds = getattr(self._last, "seconds", 0.0) + took_s

    def take_seconds(self) -> float:
        """Return how long this thread has verified since this was last called."""
        seconds: float = getattr(self._last, "seconds", 0.0)
        self._last.seconds = 0.0
        return seconds


class MeteredScorer:
    """A scorer that counts what it does, every batch timed by stage.

    Args:
        scorer: does the work.
        verifier: its own.
        metrics: where it is counted.
        score_log: to which batches are written; None: none is kept.
    """

    def __init__(
        self,
        scorer: Scorer,
        verifier: TimedVerifier,
        metrics: Metrics,
        score_log: ScoreLog | None = None,
    ) -> None:
        self._score_log = score_log
        self._scorer = scorer
        self._verifier = verifier
        self.metrics = metrics
        metrics.totals = self._totals

    @property
    def logs(self) -> bool:
        """Whether a score log is kept."""
        return self._score_log is not None

    @property
    def datasets(self) -> Mapping[str, DatasetIndex]:
        """The datasets that new requests are scored with."""
        return self._scorer.datasets

    def score(
        self,
        rollouts: Sequence[Rollout],
        options: ScoreOptions,
        deadline: float | None,
        chosen: Chosen,
        trace: Trace | None = None,
    ) -> tuple[ScoreColumns, Identity]:
        """Score a batch, and tell a trace of it.

        The other arguments and errors are those of :meth:`Scorer.score_columns`.
        """
        self._verifier.take_seconds()
        start = time.perf_counter()
        scores, identity = self._scorer.score_columns(rollouts, options, deadline, chosen)
        total_s, answers_s = time.perf_counter() - start, self._verifier.take_seconds()
        if trace is not None:
            trace.stage_ended("match", ago_s=answers_s)
            trace.stage_ended("answers")
        if rollouts and not options.probe:
            stored = {one.problem_id for one in rollouts if not one.data_source}
            known = {name: chosen[1].data_source(name) for name in stored}
            sources = [one.data_source or known[one.problem_id] for one in rollouts]
            self.metrics.batch(
                rollouts, sources, scores, run=options.run, total_s=total_s, answers_s=answers_s
            )
            if self._score_log is not None:
                self._score_log.put_batch(rollouts, scores, identity, options, chosen[1])
        return scores, identity

    def explain(
        self, rollout: Rollout, options: ScoreOptions, deadline: float | None
    ) -> Explanation:
        """Explain one rollout; arguments and errors are those of :meth:`Scorer.explain`."""
        return self._scorer.explain(rollout, options, deadline)

    def serve(self, datasets: Mapping[str, DatasetIndex]) -> None:
        """Score new requests with these datasets; errors are those of :meth:`Scorer.serve`."""
        self._scorer.serve(datasets)
        self.metrics.serving(datasets)

    def dataset(self, options: ScoreOptions) -> Chosen:
        """Return the dataset that a request means; errors are those of :meth:`Scorer.dataset`."""
        return self._scorer.dataset(options)

    def _totals(self) -> dict[str, int]:
        caches = {id(index.cache): index.cache for index in self._scorer.datasets.values()}
        stats = [cache.stats() for cache in caches.values()]
        return {
            "cache_hits": sum(s.hits for s in stats),
            "cache_misses": sum(s.misses for s in stats),
        }
