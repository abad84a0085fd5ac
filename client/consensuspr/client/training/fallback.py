"""The scorer in this process that stands in for a server that is away.

It is the server's own code on the same data, so that a sample's reward does not depend on
who scored it; data of another digest are refused.  It is loaded when it is first needed:
a run whose server stays up pays nothing for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from consensuspr.client.batcher import Batcher
from consensuspr.client.local import LocalClient
from consensuspr.client.retry import Deadline
from consensuspr.errors import InputError
from consensuspr.scoring.types import Rollout, Score
from consensuspr.wire.options import ScoreOptions

# Longer than any batch takes; what bounds an answer is its own budget.
_PATIENCE_S = 24 * 3600.0


class LocalFallback:
    """Scores single samples in this process, many at a time as one batch.

    Args:
        path: of the dataset.
        name: of the dataset at the server; None where it has one.

    Raises:
        InputError: there is no such file.
    """

    def __init__(self, path: Path, name: str | None) -> None:
        if not path.exists():
            raise InputError(f"dataset_path: there is no file {path}")
        self._path = path
        self._name = name
        self._client: LocalClient | None = None
        # One thread: batches form while one is in work, and matching has threads of its own.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="consensuspr-local")
        self._batcher = Batcher(self._score, max_in_flight=1)
        self.expected_digest: str | None = None

    async def score_one(self, rollout: Rollout, options: ScoreOptions) -> Score:
        """Score one rollout; calls that run at the same time share a batch.

        Raises:
            InputError: the dataset cannot be read, or is not the server's.
        """
        return await self._batcher.submit(rollout, options, Deadline.after(_PATIENCE_S))

    def close(self) -> None:
        """Fail whoever waits, and stop the answer processes.  May be called twice."""
        self._batcher.close()
        self._thread.shutdown(wait=True, cancel_futures=True)
        if self._client is not None:
            self._client.close()

    async def _score(
        self, rollouts: Sequence[Rollout], options: ScoreOptions, _deadline: Deadline
    ) -> Sequence[Score]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._score_here, rollouts, options)

    def _score_here(self, rollouts: Sequence[Rollout], options: ScoreOptions) -> Sequence[Score]:
        if self._client is None:
            self._client = self._load()
        return self._client.score(
            rollouts,
            options.reward,
            options.epoch,
            options.dataset,
            answer_rule=options.answer_rule,
            on_undecided=options.on_undecided,
        )

    def _load(self) -> LocalClient:
        client = LocalClient({self._name: self._path} if self._name else self._path)
        digest = client.server_info().datasets[0].digest
        if self.expected_digest is not None and digest != self.expected_digest:
            client.close()
            raise InputError(
                f"dataset_path: {self._path} ({digest}) is not the server's dataset"
                f" ({self.expected_digest}); a reward would depend on who scored it"
            )
        return client
