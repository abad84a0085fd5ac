"""Second looks at what was scored, beside the replies: rechecks and shadow scoring.

A **recheck** matches a small share of the rollouts again with the plain-Python engine, which shares
no code with the compiled one.  Both have to find the same nodes by the same channels and lower
NCR alike; anything else is a defect, logged and counted.

A **shadow** is a second dataset, the next version of one that is served, say.  A share of the
requests for the one is scored against the other as well, and what would change is counted.

Neither touches a reply or waits for anybody: what is to be looked at goes to one thread that gives
way to all others, and is dropped, and counted as dropped, while that thread has enough to do.
"""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from consensuspr.core import BACKEND
from consensuspr.errors import ConsensusPRError
from consensuspr.scoring import Scorer
from consensuspr.scoring.types import Identity, Rollout, ScoreColumns, ScoreOptions
from consensuspr.server.admission import give_way
from consensuspr.server.logs import LOGGER_NAME
from consensuspr.server.metrics import SHADOWED, Metrics

# A text that is longer is not rechecked: the plain engine reads a megabyte a second.
MAX_RECHECKED_BYTES = 64 << 10
# Batches that wait for a second look; a batch holds about a megabyte at most.
MAX_WAITING = 16
# As nice as can be: whatever else wants the core goes first.
NICENESS = 19

_log = logging.getLogger(LOGGER_NAME)


@dataclass(frozen=True, slots=True)
class _Recheck:
    """One rollout, and what the compiled engine found in it: channels, NCR and guard."""

    rollout: Rollout
    options: ScoreOptions
    found: tuple[bytes, float, float]

    @classmethod
    def of(
        cls,
        rollouts: Sequence[Rollout],
        at: int,
        options: ScoreOptions,
        scores: ScoreColumns,
        identity: Identity,
    ) -> _Recheck:
        # Where the dataset is replaced before this is carried out, there is nothing to compare.
        options = replace(options, dataset=identity.dataset, expect_digest=identity.dataset_digest)
        return cls(rollouts[at], options, _found(scores, at))

    def carry_out(self, scorer: Scorer, metrics: Metrics) -> None:
        found, twin = self.found, _found(scorer.recheck([self.rollout], self.options), 0)
        metrics.rechecked(agrees=found == twin)
        if found != twin:
            _log.error(
                "the engines disagree on rollout %r of problem %r in dataset %s: channels of the"
                " nodes, NCR and guard are %s, %g and %g by the compiled one, %s, %g and %g by the"
                " plain one",
                self.rollout.rollout_id, self.rollout.problem_id, self.options.expect_digest,
                [*found[0]], *found[1:], [*twin[0]], *twin[1:],
            )  # fmt: skip


def _is_worth_it(rollout: Rollout, scores: ScoreColumns, at: int) -> bool:
    return bool(scores.channel_numbers[at]) and len(rollout.response) <= MAX_RECHECKED_BYTES


def _found(scores: ScoreColumns, at: int) -> tuple[bytes, float, float]:
    return scores.channel_numbers[at], scores.ncr_raw[at], scores.guard[at]


@dataclass(frozen=True, slots=True)
class _Shadow:
    """A batch, the options of its shadow, and the values that it was scored with."""

    rollouts: Sequence[Rollout]
    options: ScoreOptions
    dataset: str
    values: Mapping[str, Sequence[float]]

    def carry_out(self, scorer: Scorer, metrics: Metrics) -> None:
        scores, identity = scorer.score_columns(self.rollouts, self.options)
        others = {name: getattr(scores, name) for name in SHADOWED}
        metrics.shadowed(self.dataset, identity.dataset, self.values, others)


class SecondLook:
    """Looks again at a share of what a scorer has scored; safe to use from any thread.

    Args:
        scorer: scored it, and scores it again.
        metrics: where differences are counted.
        recheck_share: of rollouts to match again, 0 to 1.
        shadows: by the name of a dataset, the name of the one that shadows it.
        shadow_share: of the batches for such a dataset to score again, 0 to 1.
    """

    def __init__(
        self,
        scorer: Scorer,
        metrics: Metrics,
        *,
        recheck_share: float,
        shadows: Mapping[str, str],
        shadow_share: float,
    ) -> None:
        self._scorer = scorer
        self._metrics = metrics
        # The plain engine has nobody to disagree with.
        self._recheck_share = recheck_share if BACKEND == "native" else 0.0
        self._shadows = dict(shadows)
        self._shadow_share = shadow_share
        self._random = random.Random()
        self._lock = threading.Lock()
        self._until_recheck = self._draw()
        self._tasks: queue.Queue[_Recheck | _Shadow | None] = queue.Queue(MAX_WAITING)
        self._thread: threading.Thread | None = None

    def offer(
        self,
        rollouts: Sequence[Rollout],
        options: ScoreOptions,
        scores: ScoreColumns,
        identity: Identity,
    ) -> None:
        """Take from a scored batch what is to be looked at again, if anything."""
        if self._recheck_share:
            with self._lock:
                at = self._until_recheck
                self._until_recheck -= len(rollouts)
                if self._until_recheck < 0:
                    self._until_recheck = self._draw()
            if at < len(rollouts) and _is_worth_it(rollouts[int(at)], scores, int(at)):
                self._put(_Recheck.of(rollouts, int(at), options, scores, identity))
        shadow = self._shadows.get(identity.dataset)
        if shadow is not None and self._random.random() < self._shadow_share:
            # Copies: the columns are the first part of the reply's, and grow.
            values = {name: [*getattr(scores, name)] for name in SHADOWED}
            options = replace(options, dataset=shadow, expect_digest=None)
            self._put(_Shadow(rollouts, options, identity.dataset, values))

    def close(self) -> None:
        """Forget what waits, and end."""
        with self._lock:
            with contextlib.suppress(queue.Empty):
                while True:
                    self._tasks.get_nowait()
            self._tasks.put_nowait(None)

    def _draw(self) -> float:
        """Return how many rollouts are passed over before the next that is rechecked."""
        if not self._recheck_share:
            return math.inf
        if self._recheck_share >= 1.0:
            return 0
        # Each rollout with the same probability: the gaps between those taken are geometric.
        gap = math.log(1.0 - self._random.random()) / math.log1p(-self._recheck_share)
        return math.floor(gap)

    def _put(self, task: _Recheck | _Shadow) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="second-look", daemon=True)
                self._thread.start()
        try:
            self._tasks.put_nowait(task)
        except queue.Full:
            self._metrics.second_look_dropped()

    def _work(self) -> None:
        give_way(NICENESS)
        while (task := self._tasks.get()) is not None:
            try:
                task.carry_out(self._scorer, self._metrics)
            except ConsensusPRError as error:
                # The dataset has gone meanwhile, say: then there is nothing to compare.
                _log.debug("a second look was not possible: %s", error)
            except Exception:
                _log.exception("a second look failed")
            del task
