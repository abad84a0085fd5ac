"""The client without a server: the same calls, scored in this process by the same scorer.

Its scores are those of a server with the same dataset.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from consensuspr.client.interface import (
    BlockingClient,
    Deadline,
    Progress,
    ScoredBatch,
    convert_rollout,
)
from consensuspr.scoring.types import Rollout, Score, ScoreOptions
from consensuspr.wire.codec import as_sent, cut
from consensuspr.wire.server_info import ServerInfo, describe

if TYPE_CHECKING:
    from consensuspr.scoring import DatasetIndex, Explanation, Limits

Path: TypeAlias = str | os.PathLike[str]

DEFAULT_DATASET = "default"

# Between two calls of ``progress``.  The slowest answer of a piece delays the next piece.
_PIECE_BYTES = 8 << 20
_PIECE_ROLLOUTS = 1024


class LocalClient(BlockingClient):
    """Scores rollouts in this process.  Thread-safe.

    Args:
        dataset: path of the dataset, or of each by name; None if every rollout brings its nodes
            and ground truth.
        timeout_s: default timeout per call; None: no limit.
        derive: equal forms of expressions: made if a node stores none, as stored, or not used.
        threads: of matching; 0: all cores.
        answer_workers: processes for answers that need computer algebra, started when needed.
        answer_budget_s: seconds for one answer.
        limits: bounds on one rollout; None: those of a server with default settings.
        run: ignored; a server's client counts by it.
        expect_digest: of the dataset; if it has another, calls raise
            :class:`~consensuspr.errors.DatasetMismatch`.

    Raises:
        DataError: a dataset cannot be read.
        InputError: another argument is wrong.
    """

    def __init__(
        self,
        dataset: Path | Mapping[str, Path] | None = None,
        timeout_s: float | None = None,
        *,
        derive: Literal["missing", "stored", "off"] = "missing",
        threads: int = 0,
        answer_workers: int = 1,
        answer_budget_s: float = 2.0,
        limits: Limits | None = None,
        run: str | None = None,
        expect_digest: str | None = None,
    ) -> None:
        # Not imported above: a client of a server needs none of this.
        from consensuspr.scoring import AnswerVerifier, DatasetIndex, Limits, Scorer

        self._defaults = ScoreOptions(run=run, expect_digest=expect_digest)
        self._timeout_s = timeout_s
        self._deadline(None)
        indexes = {DEFAULT_DATASET: DatasetIndex.empty()}
        if dataset is not None:
            paths = dataset if isinstance(dataset, Mapping) else {DEFAULT_DATASET: dataset}
            indexes = {
                name: DatasetIndex.load(path, name=name, derive=derive)
                for name, path in paths.items()
            }
        self._verifier = AnswerVerifier(workers=answer_workers, budget_s=answer_budget_s)
        self._scorer = Scorer(
            indexes, verifier=self._verifier, threads=threads, limits=limits or Limits()
        )
        self._closed = False

    def score_with(
        self,
        rollouts: Sequence[Rollout],
        options: ScoreOptions,
        *,
        timeout_s: float | None = None,
        progress: Progress | None = None,
    ) -> ScoredBatch:
        self._check_open()
        options = self._completed(options)
        deadline = self._deadline(timeout_s)
        sent = [convert_rollout(at, rollout, as_sent) for at, rollout in enumerate(rollouts)]
        if progress is None:
            return ScoredBatch(*self._scorer.score(sent, options, deadline))
        scores: list[Score] = []
        for piece in cut(sent, _size, _PIECE_BYTES, _PIECE_ROLLOUTS):
            part, identity = self._scorer.score(piece, options, deadline)
            scores += part
            progress(len(scores), len(rollouts))
        return ScoredBatch(scores, identity)

    def explain_with(
        self, rollout: Rollout, options: ScoreOptions, *, timeout_s: float | None = None
    ) -> Explanation:
        self._check_open()
        sent = convert_rollout(0, rollout, as_sent)
        return self._scorer.explain(sent, self._completed(options), self._deadline(timeout_s))

    @property
    def datasets(self) -> Mapping[str, DatasetIndex]:
        """The datasets by name."""
        return self._scorer.datasets

    def server_info(self, timeout_s: float | None = None) -> ServerInfo:
        """Return versions, limits and datasets; limits on messages are 0, there are none."""
        self._check_open()
        return describe(self._scorer, max_message_bytes=0, max_rollouts=0)

    def data_source(self, problem_id: str) -> str | None:
        """Return the data source of a problem, None if no dataset has the problem."""
        self._check_open()
        found = (index.data_source(problem_id) for index in self._scorer.datasets.values())
        return next((source for source in found if source is not None), None)

    def ground_truth(self, problem_id: str) -> str | None:
        """Return the ground truth of a problem, None if no dataset has one."""
        self._check_open()
        found = (index.ground_truth(problem_id) for index in self._scorer.datasets.values())
        return next((truth for truth in found if truth is not None), None)

    def close(self) -> None:
        """Stop the answer processes.  May be called twice."""
        self._closed = True
        self._verifier.close()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the client is closed")

    def _deadline(self, timeout_s: float | None) -> float | None:
        """Return the ``time.monotonic()`` at which a call that begins now must be done."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        return None if limit_s is None else Deadline.after(limit_s).at


def _size(rollout: Rollout) -> int:
    # The scorer rejects a response of a wrong type.
    return len(rollout.response) if isinstance(rollout.response, str | bytes) else 0
