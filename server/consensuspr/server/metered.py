"""The scorer as the service uses it: every batch is timed by stage and counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import lru_cache

from consensuspr.scoring import AnswerVerifier, Explanation, Scorer, Verdict
from consensuspr.scoring.types import AnswerRule, Identity, Rollout, Score
from consensuspr.server.metrics import Metrics, StageSeconds, Totals
from consensuspr.wire.options import ScoreOptions

# Data sources are looked up for the labels of metrics; a training step returns to few
# problems, and an id that is longer than any sensible one is not worth remembering.
_REMEMBERED_SOURCES = 16_384
_MAX_ID_CHARS = 256


class TimedVerifier(AnswerVerifier):
    """An answer verifier that knows how long the calling thread's last batch took.

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
            self._last.seconds = time.perf_counter() - start

    def take_seconds(self) -> float:
        """Return how long this thread's last batch took, once; 0 if there was none."""
        seconds: float = getattr(self._last, "seconds", 0.0)
        self._last.seconds = 0.0
        return seconds


class MeteredScorer:
    """A scorer that counts what it does.

    Args:
        scorer: does the work, with ``verifier``.
        verifier: the scorer's.
        metrics: where it is counted.
    """

    def __init__(self, scorer: Scorer, verifier: TimedVerifier, metrics: Metrics) -> None:
        self._scorer = scorer
        self._verifier = verifier
        self.metrics = metrics
        self._stored_source = lru_cache(_REMEMBERED_SOURCES)(self._look_up_source)

    def score(
        self, rollouts: Sequence[Rollout], options: ScoreOptions, deadline: float | None
    ) -> tuple[list[Score], Identity]:
        """Score a batch; arguments and errors are those of :meth:`Scorer.score`."""
        self._verifier.take_seconds()
        start = time.perf_counter()
        scores, identity = self._scorer.score(
            rollouts,
            reward=options.reward,
            epoch=options.epoch,
            dataset=options.dataset,
            answer_rule=options.answer_rule,
            on_undecided=options.on_undecided,
            include_spans=options.include_spans,
            deadline=deadline,
        )
        took = StageSeconds(time.perf_counter() - start, self._verifier.take_seconds())
        if rollouts:
            sources = [self._source(rollout, identity.dataset) for rollout in rollouts]
            self.metrics.batch(rollouts, sources, scores, took)
            self._count_totals()
        return scores, identity

    def explain(
        self, rollout: Rollout, options: ScoreOptions, deadline: float | None
    ) -> Explanation:
        """Explain one rollout; arguments and errors are those of :meth:`Scorer.explain`."""
        return self._scorer.explain(
            rollout,
            reward=options.reward,
            epoch=options.epoch,
            dataset=options.dataset,
            answer_rule=options.answer_rule,
            on_undecided=options.on_undecided,
            deadline=deadline,
        )

    def _count_totals(self) -> None:
        caches = {id(index.cache): index.cache for index in self._scorer.datasets.values()}
        stats = [cache.stats() for cache in caches.values()]
        self.metrics.totals(
            Totals(
                cache_hits=sum(s.hits for s in stats),
                cache_misses=sum(s.misses for s in stats),
                answer_processes=self._verifier.processes_started,
            )
        )

    def _source(self, rollout: Rollout, dataset: str) -> str | None:
        if rollout.data_source:
            return rollout.data_source
        if len(rollout.problem_id) > _MAX_ID_CHARS:
            return None
        return self._stored_source(dataset, rollout.problem_id)

    def _look_up_source(self, dataset: str, problem_id: str) -> str | None:
        entry = self._scorer.datasets[dataset].entry(problem_id)
        return None if entry is None else entry.data_source
