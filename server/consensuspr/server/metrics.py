"""The counts of a worker, as Prometheus metrics.

A worker sends the supervisor all samples with each heartbeat, and the supervisor's endpoint adds
them up over all workers, dead ones included.  (The multiprocess mode of prometheus-client
maps files, and a full disk would kill the workers.)  Means are quotients of two counters.
"""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from consensuspr.core import BACKEND, EXPANSION_VERSION, NORMAL_FORM_VERSION
from consensuspr.scoring import ANSWER_VERSION, AnswerVerifier, DatasetIndex, Verdict
from consensuspr.scoring.guard import GuardWatch
from consensuspr.scoring.types import CHANNELS, Rollout, ScoreColumns, Status
from consensuspr.server.logs import LOGGER_NAME
from consensuspr.v1 import PROTOCOL_VERSION
from consensuspr.version import VERSION

# Labels come from requests, and each value stays in memory; further ones count as OTHER.
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

_log = logging.getLogger(LOGGER_NAME)


class Metrics:
    """The metrics of one worker.  Thread-safe.

    Attributes:
        caches: returns hits and misses of the matcher caches since their start.
        queue: returns bytes and number of unfinished requests.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._merged: dict[str, str] = {}
        self._known: dict[str, set[str]] = {"data_source": set(), "run": set()}
        self._guard_watch = GuardWatch()
        self.caches: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self.queue: Callable[[], tuple[int, int]] = lambda: (0, 0)
        counter, gauge, histogram = self._counter, self._gauge, self._histogram
        self._requests = counter(
            "requests", "Finished requests by method and code.", "method", "code"
        )
        self._request_seconds = histogram(
            "request_seconds", "Seconds from a request's arrival to its reply.", _SECONDS, "method"
        )
        self._request_rollouts = histogram(
            "request_rollouts", "Rollouts in one scoring request.", _ROLLOUTS
        )
        self._batch_seconds = histogram(
            "batch_seconds",
            "Seconds of work on a batch: match (with the reward), answers, total.",
            _SECONDS,
            "stage",
        )
        self._rollouts = counter("rollouts", "Scored rollouts.", "status", *self._known)
        self._response_bytes = counter("response_bytes", "Bytes of scored responses.")
        self._answers = counter(
            "answers", "Checked answers by the method that decided them.", "method"
        )
        self._undecided = counter("answers_undecided", "Rollouts with status ANSWER_UNDECIDED.")
        self._sums = {
            value: (
                counter(f"{value}_sum", f"Sum of {value}.", *self._known),
                counter(f"{value}_rollouts", f"Rollouts with {value}.", *self._known),
            )
            for value in ("ncr", "acc", "reward")
        }
        self._nodes = counter(
            "nodes",
            "Nodes of scored rollouts by matching channel, or none.",
            "channel",
        )
        self._guarded = counter(
            "guarded_rollouts",
            "Rollouts whose NCR the guard lowered, by answer: right, wrong or unknown.",
            "answer",
        )
        self._guard_factors = histogram(
            "guard_factor", "Factor of the guard, if it lowered NCR.", _FACTORS
        )
        self._score_log_dropped = counter(
            "score_log_dropped",
            "Rows and texts missing from the score log: the disk is full or too slow.",
            "kind",
        )
        for kind in ("rows", "texts"):
            self._score_log_dropped.labels(kind)  # from the start: an alert needs to see it rise
        self._cache_counters = (
            counter("matcher_cache_hits", "Matchers found in the cache."),
            counter(
                "matcher_cache_misses", "Matchers compiled because the cache did not have them."
            ),
        )
        self._cache_counts = (0, 0)
        info = gauge("build_info", "1, with the versions of the server.", "max", *_VERSIONS)
        info.labels(**_VERSIONS).set(1)
        self._dataset_info = gauge(
            "dataset_info", "1 for the present digest of a dataset, 0 for earlier ones.",
            "max", "dataset", "digest",
        )  # fmt: skip
        self._dataset_problems = gauge(
            "dataset_problems", "Problems of a dataset.", "max", "dataset"
        )
        self._served: dict[str, str] = {}
        self._queue_seconds = histogram(
            "queue_seconds", "Seconds that a request waited in the queue.", _SECONDS
        )
        self._queue_gauges = (
            gauge("queue_bytes", "Bytes of admitted, unfinished requests.", "sum"),
            gauge("queue_requests", "Admitted, unfinished requests.", "sum"),
        )

    @property
    def registry(self) -> CollectorRegistry:
        """The metrics, up to date."""
        counts = self.caches()
        for metric, count, before in zip(
            self._cache_counters, counts, self._cache_counts, strict=True
        ):
            metric.inc(max(0, count - before))
        self._cache_counts = counts
        for queue_gauge, value in zip(self._queue_gauges, self.queue(), strict=True):
            queue_gauge.set(value)
        return self._registry

    def samples(self) -> dict[str, Any]:
        """Return all samples, to be added up over workers.

        Returns:
            By metric: its text, its kind, how its values of several workers become one (``sum``
            or ``max``), and its samples, each ``[name, labels, their values, value]``.
        """
        return {
            metric.name: [
                metric.documentation,
                metric.type,
                self._merged.get(metric.name, "sum"),
                [
                    [name, [*labels], [*labels.values()], value]
                    for name, labels, value, *_ in metric.samples
                    if not name.endswith("_created")
                ],
            ]
            for metric in self.registry.collect()
        }

    def request(self, method: str, code: str, seconds: float) -> None:
        """Count a finished request."""
        self._requests.labels(method, code).inc()
        self._request_seconds.labels(method).observe(seconds)

    def request_rollouts(self, number: int) -> None:
        """Count the rollouts of a scoring request."""
        self._request_rollouts.observe(number)

    def queued(self, seconds: float) -> None:
        """Count the time that a request waited for its turn."""
        self._queue_seconds.observe(seconds)

    def serving(self, datasets: Mapping[str, DatasetIndex]) -> None:
        """Note which datasets are served from now on."""
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
        """Count a scored batch; what ``total_s`` has beside ``answers_s`` went into matching."""
        stages = {"total": total_s, "answers": answers_s, "match": max(0.0, total_s - answers_s)}
        for stage, seconds in stages.items():
            self._batch_seconds.labels(stage).observe(seconds)
        self._response_bytes.inc(sum(len(rollout.response) for rollout in rollouts))
        for method, number in collections.Counter(scores.answer_method).items():
            if method:
                self._answers.labels(method).inc(number)
        self._undecided.inc(scores.status.count(Status.ANSWER_UNDECIDED))
        run = self._bounded("run", run)
        known = {source: self._bounded("data_source", source) for source in set(sources)}
        labels = [known[source] for source in sources]
        counted = collections.Counter(zip(scores.status, labels, strict=True))
        for (status, label), number in counted.items():
            self._rollouts.labels(status, label, run).inc(number)
        for name, (value_sum, value_rollouts) in self._sums.items():
            pairs = [*zip(getattr(scores, name), labels, strict=True)]
            for label in set(labels):
                values = [value for value, own in pairs if own == label and value == value]
                if values:  # else there is no such series
                    value_sum.labels(label, run).inc(sum(values))
                    value_rollouts.labels(label, run).inc(len(values))
        reached = b"".join(scores.channel_numbers)
        for number, channel in enumerate(CHANNELS):
            if count := reached.count(number):
                self._nodes.labels(channel or "none").inc(count)
        right = lowered = 0
        for factor, acc in zip(scores.guard, scores.acc, strict=True):
            right += acc == 1.0 and factor == factor  # NaN: there is no NCR
            if factor < 1.0:
                lowered += acc == 1.0
                self._guarded.labels(_ANSWERS.get(acc, "unknown")).inc()
                self._guard_factors.observe(factor)
        warning = self._guard_watch.add(right, lowered)
        if warning is not None:
            _log.warning("%s", warning)

    def score_log_dropped(self, rows: int, texts: int) -> None:
        """Count rows that the score log lacks, and texts that rows of it lack."""
        self._score_log_dropped.labels("rows").inc(rows)
        self._score_log_dropped.labels("texts").inc(texts)

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


class TimedVerifier(AnswerVerifier):
    """An answer verifier that records how long the calling thread has waited for it."""

    _last = threading.local()

    def verify_batch(self, *arguments: Any, **options: Any) -> list[Verdict]:
        """Verify as :class:`AnswerVerifier` does."""
        start = time.perf_counter()
        try:
            return super().verify_batch(*arguments, **options)
        finally:
            took_s = time.perf_counter() - start
            self._last.seconds = getattr(self._last, "seconds", 0.0) + took_s

    def take_seconds(self) -> float:
        """Return how long this thread has verified since this was last called."""
        seconds: float = getattr(self._last, "seconds", 0.0)
        self._last.seconds = 0.0
        return seconds
