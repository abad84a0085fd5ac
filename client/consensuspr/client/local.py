"""The client without a server: the same calls, scored in this process by the same scorer.

For evaluation, for small runs, and as the fallback of a trainer whose server is gone.
Gives exactly what a server with the same dataset gives.  What a server needs beyond
the scorer (queues, several processes) is not here; matching uses threads, and answers
that need computer algebra go to a process of their own, as everywhere.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from consensuspr.client.batching import ScoredBatch
from consensuspr.errors import InputError
from consensuspr.scoring.rewards import RewardSpec
from consensuspr.scoring.types import (
    AnswerRule,
    OnUndecided,
    Rollout,
    Score,
    ScoreOptions,
)
from consensuspr.wire.codec import as_sent, cut
from consensuspr.wire.server_info import ServerInfo, describe

if TYPE_CHECKING:
    from consensuspr.client.batching import Progress
    from consensuspr.scoring import Explanation, Limits

Path: TypeAlias = str | os.PathLike[str]

DEFAULT_DATASET = "default"
DEFAULT_REWARD = RewardSpec.linear()

# Between two calls of ``progress``.  Larger than a server's pieces, because here the pieces
# follow each other and the slowest answer of each holds up the next.
_PIECE_BYTES = 8 << 20
_PIECE_ROLLOUTS = 1024


class LocalClient:
    """Scores rollouts in this process.  Thread-safe, as the scorer is.

    Args:
        dataset: path of the dataset, or of each by name.
        timeout_s: for a whole call where the call is given none; None: no limit.
        derive: equal forms of expressions: made where a node stores none, taken as
            stored, or not used; a server scores alike where its setting is the same.
        threads: of matching; 0: all cores.
        answer_workers: processes for answers that need computer algebra; none starts
            before the first such answer.
        answer_budget_s: seconds for one answer.
        limits: bounds on one rollout; None: those of a server with default settings.

    Raises:
        DataError: a dataset cannot be read.
        InputError: another argument is wrong.
    """

    def __init__(
        self,
        dataset: Path | Mapping[str, Path],
        timeout_s: float | None = None,
        *,
        derive: Literal["missing", "stored", "off"] = "missing",
        threads: int = 0,
        answer_workers: int = 1,
        answer_budget_s: float = 2.0,
        limits: Limits | None = None,
    ) -> None:
        # Here and not above: a client of a server needs none of this.
        from consensuspr.scoring import AnswerVerifier, DatasetIndex, Limits, Scorer

        self._timeout_s = timeout_s
        self._deadline(None)
        paths = dataset if isinstance(dataset, Mapping) else {DEFAULT_DATASET: dataset}
        indexes = {
            name: DatasetIndex.load(path, name=name, derive=derive) for name, path in paths.items()
        }
        self._verifier = AnswerVerifier(workers=answer_workers, budget_s=answer_budget_s)
        self._scorer = Scorer(
            indexes, verifier=self._verifier, threads=threads, limits=limits or Limits()
        )
        self._closed = False

    def score(
        self,
        rollouts: Sequence[Rollout],
        reward: RewardSpec = DEFAULT_REWARD,
        epoch: int = 0,
        dataset: str | None = None,
        *,
        answer_rule: AnswerRule | str | None = None,
        on_undecided: OnUndecided | str = OnUndecided.COUNT_WRONG,
        include_spans: bool = False,
        timeout_s: float | None = None,
        progress: Progress | None = None,
    ) -> ScoredBatch:
        """Score a batch of any size; order is kept.

        Arguments, result and errors are those of :meth:`RewardClient.score`.
        """
        options = ScoreOptions.checked(
            reward, epoch, dataset, answer_rule, on_undecided, include_spans
        )
        return self.score_with(rollouts, options, timeout_s=timeout_s, progress=progress)

    def score_with(
        self,
        rollouts: Sequence[Rollout],
        options: ScoreOptions,
        *,
        timeout_s: float | None = None,
        progress: Progress | None = None,
    ) -> ScoredBatch:
        """Score a batch as :meth:`score` does, with options that were made before."""
        self._check_open()
        deadline = self._deadline(timeout_s)
        sent = [_as_sent(position, rollout) for position, rollout in enumerate(rollouts)]
        if progress is None:
            return ScoredBatch(*self._scorer.score(sent, options, deadline))
        scores: list[Score] = []
        for piece in cut(sent, _size, _PIECE_BYTES, _PIECE_ROLLOUTS):
            part, identity = self._scorer.score(piece, options, deadline)
            scores += part
            progress(len(scores), len(rollouts))
        return ScoredBatch(scores, identity)

    def explain(
        self,
        rollout: Rollout,
        reward: RewardSpec = DEFAULT_REWARD,
        epoch: int = 0,
        dataset: str | None = None,
        *,
        answer_rule: AnswerRule | str | None = None,
        on_undecided: OnUndecided | str = OnUndecided.COUNT_WRONG,
        timeout_s: float | None = None,
    ) -> Explanation:
        """Score one rollout and say which expression of which node was found where.

        Arguments and errors are those of :meth:`score`.
        """
        self._check_open()
        options = ScoreOptions.checked(reward, epoch, dataset, answer_rule, on_undecided, True)
        return self._scorer.explain(_as_sent(0, rollout), options, self._deadline(timeout_s))

    def server_info(self, timeout_s: float | None = None) -> ServerInfo:
        """Return versions, limits and datasets; limits on messages are 0, there are none."""
        self._check_open()
        return describe(self._scorer, max_message_bytes=0, max_rollouts=0)

    def data_source(self, problem_id: str) -> str | None:
        """Return the data source of a problem, None where no dataset has the problem."""
        self._check_open()
        found = (index.data_source(problem_id) for index in self._scorer.datasets.values())
        return next((source for source in found if source is not None), None)

    def wait_until_ready(self, timeout_s: float | None = None) -> ServerInfo:
        """Return at once what :meth:`server_info` returns."""
        return self.server_info(timeout_s)

    def close(self) -> None:
        """Stop the answer processes.  May be called twice."""
        self._closed = True
        self._verifier.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the client is closed")

    def _deadline(self, timeout_s: float | None) -> float | None:
        """Return the ``time.monotonic()`` at which a call that begins now must be over."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        if limit_s is None:
            return None
        if not 0 < limit_s < math.inf:
            raise InputError(f"timeout_s must be a positive number of seconds, got {limit_s}")
        return time.monotonic() + limit_s


def _as_sent(position: int, rollout: Rollout) -> Rollout:
    try:
        return as_sent(rollout)
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"rollouts[{position}] has a field of a wrong type: {error}") from None


def _size(rollout: Rollout) -> int:
    # A response of a wrong type is for the scorer to refuse.
    return len(rollout.response) if isinstance(rollout.response, str | bytes) else 0
